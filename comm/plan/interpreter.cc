#include "comm/plan/interpreter.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "base/str.h"
#include "comm/plan/view_check.h"

namespace cria::comm {
namespace {

constexpr std::array<const char*, 3> kSlotNames = {"input", "output", "scratch"};

uint64_t Hash(uint64_t number, uint64_t seed) {
  return Hash64({reinterpret_cast<const char*>(&number), sizeof(number)}, seed);
}

// What is known of a value.
struct Symbol {
  int64_t element = -1;  // of the input
  int32_t num_values = 0;
  bool finished = false;
  uint64_t ranks = 0;  // sum of the hashes of the ranks whose values are in it
  uint64_t order = 0;  // hash of the expression that made it
};

struct Cell {
  Symbol symbol = {};
  int num_writes = 0;  // as output
  // In which round this was last read and written, by which task (kMany: several).
  int read_round = -1, read_task = -1;
  int write_round = -1, write_task = -1;
};
constexpr int kMany = -2;

class Interpreter {
 public:
  Interpreter(std::span<const Plan> plans, const InterpreterJob& job) : plans_(plans), job_(job) {
    for (size_t r = 0; r < plans.size(); ++r) AddMemory(static_cast<int>(r));
  }

  Status Run() {
    CRIA_RETURN_IF_ERROR(CheckViews(plans_, job_.host_of_rank));
    for (size_t round = 0; round < plans_[0].rounds.size(); ++round) {
      CRIA_RETURN_IF_ERROR(RunRound(static_cast<int>(round)));
    }
    for (size_t r = 0; r < plans_.size(); ++r) {
      CRIA_RETURN_IF_ERROR(CheckOutput(static_cast<int>(r)));
    }
    return OkStatus();
  }

 private:
  // The cells of a rank: its slots, of which input and output may be one place.
  struct Memory {
    std::array<int64_t, 3> base = {0, 0, 0};
    std::array<int64_t, 3> elements = {0, 0, 0};
    std::vector<Cell> cells = {};
  };

  void AddMemory(int rank) {
    const InterpreterJob::Buffers& buffers = job_.buffers[static_cast<size_t>(rank)];
    Memory memory;
    memory.elements = {buffers.input_elements, buffers.output_elements,
                       plans_[static_cast<size_t>(rank)].scratch_elements};
    const int64_t at = buffers.output_at.value_or(buffers.input_elements);
    memory.base[0] = std::max<int64_t>(0, -at);
    memory.base[1] = memory.base[0] + at;
    memory.base[2] =
        std::max(memory.base[0] + memory.elements[0], memory.base[1] + memory.elements[1]);
    memory.cells.resize(static_cast<size_t>(memory.base[2] + memory.elements[2]));
    for (int64_t i = 0; i < memory.elements[0]; ++i) {
      memory.cells[static_cast<size_t>(memory.base[0] + i)].symbol = InputSymbol(rank, i);
    }
    memories_.push_back(std::move(memory));
  }

  static Symbol InputSymbol(int rank, int64_t element) {
    const uint64_t hash = Hash(static_cast<uint64_t>(rank), 1);
    return {.element = element,
            .num_values = 1,
            .finished = false,
            .ranks = hash,
            .order = Hash(static_cast<uint64_t>(element), hash)};
  }

  Cell& At(const Region& region, int64_t i) {
    Memory& memory = memories_[static_cast<size_t>(region.rank)];
    const int64_t base = memory.base[static_cast<size_t>(region.slot)];
    return memory.cells[static_cast<size_t>(base + region.offset + i)];
  }

  template <typename... Parts>
  Status Broken(int round, const Task& task, const Parts&... parts) const {
    return FailedPreconditionError("round ", round, ", task of rank ", task.owner, " with ",
                                   task.count, " elements: ", parts...);
  }

  std::string Text(const Region& region, int64_t i) const {
    return StrCat("rank ", region.rank, "'s ", kSlotNames[static_cast<size_t>(region.slot)], "[",
                  region.offset + i, "]");
  }

  Status CheckTask(int round, const Task& task) const {
    if (task.count <= 0 || task.sources.empty() || task.targets.empty()) {
      return Broken(round, task, "no elements, sources or targets");
    }
    if (!job_.reduces && task.sources.size() != 1) {
      return Broken(round, task, task.sources.size(), " sources, but nothing is reduced");
    }
    for (const auto* regions : {&task.sources, &task.targets}) {
      for (const Region& region : *regions) {
        if (region.rank < 0 || static_cast<size_t>(region.rank) >= memories_.size()) {
          return Broken(round, task, "there is no rank ", region.rank);
        }
        const Memory& memory = memories_[static_cast<size_t>(region.rank)];
        if (region.offset < 0 ||
            region.offset + task.count > memory.elements[static_cast<size_t>(region.slot)]) {
          return Broken(round, task, Text(region, 0), " is outside: it has ",
                        memory.elements[static_cast<size_t>(region.slot)], " elements");
        }
      }
    }
    for (const Region& target : task.targets) {
      if (target.slot == Slot::kInput) return Broken(round, task, "writes ", Text(target, 0));
    }
    return OkStatus();
  }

  // One source of a combination.
  StatusOr<Symbol> Read(int round, const Task& task, int number, const Region& region, int64_t i) {
    Cell& cell = At(region, i);
    cell.read_task = cell.read_round == round && cell.read_task != number ? kMany : number;
    cell.read_round = round;
    const Symbol& symbol = cell.symbol;
    if (symbol.num_values == 0) {
      return Broken(round, task, Text(region, i), " is read before it is written");
    }
    if (region.slot == Slot::kInput &&
        symbol.order != InputSymbol(region.rank, region.offset + i).order) {
      return Broken(round, task, Text(region, i), " is read after it was overwritten in place");
    }
    if (job_.reduces && symbol.finished != (region.slot == Slot::kOutput)) {
      return Broken(round, task, Text(region, i), symbol.finished ? " is" : " is not", " finished");
    }
    return symbol;
  }

  StatusOr<Symbol> Combine(int round, const Task& task, int number, int64_t i) {
    CRIA_ASSIGN_OR_RETURN(Symbol sum, Read(round, task, number, task.sources[0], i));
    if (task.sources.size() == 1) return sum;
    if (sum.finished) return Broken(round, task, "adds to a finished value");
    for (size_t s = 1; s < task.sources.size(); ++s) {
      CRIA_ASSIGN_OR_RETURN(const Symbol next, Read(round, task, number, task.sources[s], i));
      if (next.finished) return Broken(round, task, "adds a finished value");
      if (next.element != sum.element) {
        return Broken(round, task, "adds element ", next.element, " to element ", sum.element);
      }
      sum.num_values += next.num_values;
      sum.ranks += next.ranks;
      sum.order = Hash(next.order, sum.order);
    }
    return sum;
  }

  Status Write(int round, const Task& task, int number, const Region& region, int64_t i,
               Symbol symbol) {
    Cell& cell = At(region, i);
    if (cell.write_round == round) {
      return Broken(round, task, Text(region, i), " is written twice in this round");
    }
    if (cell.read_round == round && cell.read_task != number) {
      return Broken(round, task, Text(region, i), " is read by another task of this round");
    }
    if (job_.reduces && symbol.finished && region.slot == Slot::kScratch) {
      return Broken(round, task, Text(region, i), " would hold a finished value");
    }
    symbol.finished = job_.reduces && region.slot == Slot::kOutput;
    cell.write_round = round;
    cell.symbol = symbol;
    if (region.slot == Slot::kOutput) ++cell.num_writes;
    return OkStatus();
  }

  Status RunRound(int round) {
    std::vector<std::pair<const Task*, std::vector<Symbol>>> results;
    for (size_t r = 0; r < plans_.size(); ++r) {
      for (const Task& task : plans_[r].rounds[static_cast<size_t>(round)].tasks) {
        if (task.owner != static_cast<int>(r)) continue;
        CRIA_RETURN_IF_ERROR(CheckTask(round, task));
        std::vector<Symbol> symbols;
        for (int64_t i = 0; i < task.count; ++i) {
          CRIA_ASSIGN_OR_RETURN(const Symbol symbol,
                                Combine(round, task, static_cast<int>(results.size()), i));
          symbols.push_back(symbol);
        }
        results.emplace_back(&task, std::move(symbols));
      }
    }
    for (size_t t = 0; t < results.size(); ++t) {
      const auto& [task, symbols] = results[t];
      for (const Region& target : task->targets) {
        for (int64_t i = 0; i < task->count; ++i) {
          CRIA_RETURN_IF_ERROR(
              Write(round, *task, static_cast<int>(t), target, i, symbols[static_cast<size_t>(i)]));
        }
      }
    }
    return OkStatus();
  }

  Status CheckOutput(int rank) {
    uint64_t all_ranks = 0;
    for (size_t r = 0; r < plans_.size(); ++r) all_ranks += Hash(r, 1);
    const Region output{rank, Slot::kOutput, 0};
    for (int64_t i = 0; i < job_.buffers[static_cast<size_t>(rank)].output_elements; ++i) {
      const InterpreterJob::Expected expected = job_.expected(rank, i);
      const Cell& cell = At(output, i);
      if (cell.num_writes != (expected.written ? 1 : 0)) {
        return FailedPreconditionError(Text(output, i), " is written ", cell.num_writes, " times");
      }
      if (!expected.written) continue;
      const bool all = expected.source < 0;
      const uint64_t ranks = all ? all_ranks : Hash(static_cast<uint64_t>(expected.source), 1);
      const int num_values = all ? static_cast<int>(plans_.size()) : 1;
      if (cell.symbol.element != expected.element || cell.symbol.ranks != ranks ||
          cell.symbol.num_values != num_values) {
        return FailedPreconditionError(
            Text(output, i), " holds element ", cell.symbol.element, " of ", cell.symbol.num_values,
            " ranks, not element ", expected.element, " of ",
            all ? StrCat("all ", num_values) : StrCat("rank ", expected.source));
      }
      if (all) CRIA_RETURN_IF_ERROR(CheckOrder(expected.element, cell.symbol.order, output, i));
    }
    return OkStatus();
  }

  // The same element on two ranks was made by the same expression: the same bits.
  Status CheckOrder(int64_t element, uint64_t order, const Region& output, int64_t i) {
    const auto at = static_cast<size_t>(element);
    if (orders_.size() <= at) orders_.resize(at + 1, 0);
    if (orders_[at] == 0) orders_[at] = order;
    if (orders_[at] == order) return OkStatus();
    return FailedPreconditionError(Text(output, i), " was combined in another order than rank 0's");
  }

  const std::span<const Plan> plans_;
  const InterpreterJob& job_;
  std::vector<Memory> memories_;
  std::vector<uint64_t> orders_;  // by element, of the first rank that has it; 0: none yet
};

// Part `rank` of the whole, of a kind with parts.
struct PartPlace {
  int64_t start = 0;
  int64_t count = 0;
};

std::vector<PartPlace> PlacesOf(const PlanRequest& request) {
  std::vector<PartPlace> places;
  int64_t next = 0;
  for (int rank = 0; rank < request.topology->size(); ++rank) {
    const auto i = static_cast<size_t>(rank);
    const int64_t count = request.counts.empty() ? request.count : request.counts[i];
    places.push_back({request.displacements.empty() ? next : request.displacements[i], count});
    next += count;
  }
  return places;
}

// Expected of a whole made of the ranks' parts: element i belongs to one of them, or to none.
InterpreterJob::Expected PartOwner(const std::vector<PartPlace>& places, int64_t i, bool transpose,
                                   int rank) {
  for (size_t s = 0; s < places.size(); ++s) {
    const int64_t within = i - places[s].start;
    if (within < 0 || within >= places[s].count) continue;
    const int64_t element = transpose ? places[static_cast<size_t>(rank)].start + within : within;
    return {.element = element, .source = static_cast<int>(s)};
  }
  return {.written = false};
}

}  // namespace

InterpreterJob JobOf(const PlanRequest& request, bool in_place) {
  InterpreterJob job;
  const int n = request.topology->size();
  const auto places = PlacesOf(request);
  int64_t whole = 0;
  for (const PartPlace& place : places) whole = std::max(whole, place.start + place.count);
  job.reduces = Reduces(request.kind);
  job.host_of_rank = request.topology->host_of_rank;
  const int root = request.root;
  for (int rank = 0; rank < n; ++rank) {
    const PartPlace& own = places[static_cast<size_t>(rank)];
    const bool is_root = rank == root;
    InterpreterJob::Buffers buffers;
    switch (request.kind) {
      case OpKind::kAllReduce:
        buffers = {request.count, request.count, 0};
        break;
      case OpKind::kReduce:
        buffers = {request.count, is_root ? request.count : 0, 0};
        break;
      case OpKind::kBroadcast:
        buffers = {is_root ? request.count : 0, is_root ? 0 : request.count, 0};
        break;
      case OpKind::kAllGather:
      case OpKind::kAllGatherV:
        buffers = {own.count, whole, -own.start};
        break;
      case OpKind::kReduceScatter:
      case OpKind::kReduceScatterV:
        buffers = {whole, own.count, own.start};
        break;
      case OpKind::kGather:
        buffers = {own.count, is_root ? whole : 0, -own.start};
        break;
      case OpKind::kScatter:
        buffers = {is_root ? whole : 0, own.count, own.start};
        break;
      default:
        buffers = {whole, whole, 0};
        break;
    }
    const bool possible = in_place && request.kind != OpKind::kAllToAll;
    if (!possible || buffers.input_elements == 0 || buffers.output_elements == 0) {
      buffers.output_at.reset();
    }
    job.buffers.push_back(buffers);
  }
  const OpKind kind = request.kind;
  job.expected = [places, kind, root](int rank, int64_t i) -> InterpreterJob::Expected {
    switch (kind) {
      case OpKind::kBroadcast:
        return {.element = i, .source = root};
      case OpKind::kAllGather:
      case OpKind::kAllGatherV:
      case OpKind::kGather:
        return PartOwner(places, i, /*transpose=*/false, rank);
      case OpKind::kAllToAll:
        return PartOwner(places, i, /*transpose=*/true, rank);
      case OpKind::kReduceScatter:
      case OpKind::kReduceScatterV:
        return {.element = places[static_cast<size_t>(rank)].start + i, .source = -1};
      case OpKind::kScatter:
        return {.element = places[static_cast<size_t>(rank)].start + i, .source = root};
      default:
        return {.element = i, .source = -1};
    }
  };
  return job;
}

Status RunPlans(std::span<const Plan> plans, const InterpreterJob& job) {
  return Interpreter(plans, job).Run();
}

}  // namespace cria::comm
