#include "comm/rendezvous/rank_environment.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "comm/rendezvous/slurm_lists.h"

extern char** environ;

namespace cria::comm {
namespace {

// Ports that are made of a job's name lie below those that Linux gives to connecting sockets.
constexpr int kDerivedPortFirst = 15000;
constexpr int kDerivedPortCount = 15000;

constexpr const char* kLauncherVariable = "CRIA_COMM_LAUNCHER";

// Reads variables by name; one that is set to nothing counts as not set.
class Reader {
 public:
  explicit Reader(const EnvironmentVariables& variables) : variables_(variables) {}

  const std::string* Text(const char* name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() || found->second.empty() ? nullptr : &found->second;
  }

  // The first of these that is set.
  const char* FirstSet(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (Text(name) != nullptr) return name;
    }
    return nullptr;
  }

  // nullopt when it is not set.
  StatusOr<std::optional<int>> Number(const char* name, int min, int max) const {
    const std::string* text = Text(name);
    if (text == nullptr) return std::optional<int>();
    int value = 0;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
    if (error != std::errc() || end != text->data() + text->size() || value < min || value > max) {
      return InvalidArgumentError(name, "=", *text, ": expected a whole number in [", min, ", ",
                                  max, "]");
    }
    return std::optional<int>(value);
  }

  StatusOr<int> Required(const char* name, const char* why, int min, int max) const {
    CRIA_ASSIGN_OR_RETURN(const std::optional<int> value, Number(name, min, max));
    if (!value.has_value()) {
      return InvalidArgumentError(why, " is set, but ", name, " is not");
    }
    return *value;
  }

 private:
  const EnvironmentVariables& variables_;
};

// What one launcher says, with the names to say it back.
struct Source {
  RankEnvironment environment = {};
  const char* rank_name = nullptr;
  const char* size_name = nullptr;
  std::string derived_port_key = {};  // empty: no port can be made
  std::string first_host = {};        // empty: unknown
  std::string address_hint = {};      // what to do when the master's address is unknown

  std::string Brief() const {
    return StrCat(rank_name, "=", environment.rank, " of ", size_name, "=", environment.world_size);
  }
};

Status CheckRanks(const Source& source, const char* local_rank_name, const char* local_size_name) {
  const RankEnvironment& e = source.environment;
  if (e.rank >= e.world_size) {
    return InvalidArgumentError(source.rank_name, "=", e.rank, " is not below ", source.size_name,
                                "=", e.world_size);
  }
  if (e.local_size > e.world_size) {
    return InvalidArgumentError(local_size_name, "=", e.local_size, " is above ", source.size_name,
                                "=", e.world_size);
  }
  if (e.local_rank >= (e.local_size > 0 ? e.local_size : e.world_size)) {
    return InvalidArgumentError(local_rank_name, "=", e.local_rank, " is not below ",
                                e.local_size > 0 ? StrCat(local_size_name, "=", e.local_size)
                                                 : StrCat(source.size_name, "=", e.world_size));
  }
  return OkStatus();
}

// Rank, size and place on the host of a launcher that gives each as one number.
StatusOr<Source> ReadPlain(const Reader& reader, const char* name, const char* rank_name,
                           const char* size_name, const char* local_rank_name,
                           const char* local_size_name) {
  Source source;
  source.rank_name = rank_name;
  source.size_name = size_name;
  RankEnvironment& e = source.environment;
  e.source = name;
  CRIA_ASSIGN_OR_RETURN(e.rank, reader.Required(rank_name, rank_name, 0, kWorldSizeMax - 1));
  CRIA_ASSIGN_OR_RETURN(e.world_size, reader.Required(size_name, rank_name, 1, kWorldSizeMax));
  CRIA_ASSIGN_OR_RETURN(const std::optional<int> local_size,
                        reader.Number(local_size_name, 1, kWorldSizeMax));
  CRIA_ASSIGN_OR_RETURN(const std::optional<int> local_rank,
                        reader.Number(local_rank_name, 0, kWorldSizeMax - 1));
  e.local_size = local_size.value_or(e.world_size == 1 ? 1 : 0);
  e.local_rank = local_rank.value_or(0);
  CRIA_RETURN_IF_ERROR(CheckRanks(source, local_rank_name, local_size_name));
  return source;
}

StatusOr<Source> ReadTorchrun(const Reader& reader) {
  CRIA_ASSIGN_OR_RETURN(Source source, ReadPlain(reader, "torchrun", "RANK", "WORLD_SIZE",
                                                 "LOCAL_RANK", "LOCAL_WORLD_SIZE"));
  source.address_hint =
      "torchrun sets both; by hand, export the address and a free port of the "
      "host of rank 0 to all ranks";
  const std::string* run = reader.Text("TORCHELASTIC_RUN_ID");
  if (run != nullptr && *run != "none") source.environment.job = StrCat("torchrun/", *run);
  return source;
}

// Ranks on this host, by Slurm; 0 when it does not say.
StatusOr<int> SlurmLocalSize(const Reader& reader) {
  const char* list = reader.FirstSet({"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
  CRIA_ASSIGN_OR_RETURN(const std::optional<int> node,
                        reader.Number("SLURM_NODEID", 0, kWorldSizeMax - 1));
  if (list != nullptr && node.has_value()) {
    auto tasks = ExpandTasksPerNode(*reader.Text(list), kWorldSizeMax);
    if (!tasks.ok()) return Annotate(tasks.status(), list);
    if (static_cast<size_t>(*node) >= tasks->size()) {
      return InvalidArgumentError("SLURM_NODEID=", *node, " is not among the ", tasks->size(),
                                  " hosts of ", list, "=", *reader.Text(list));
    }
    return (*tasks)[static_cast<size_t>(*node)];
  }
  CRIA_ASSIGN_OR_RETURN(const std::optional<int> per_node,
                        reader.Number("SLURM_NTASKS_PER_NODE", 1, kWorldSizeMax));
  return per_node.value_or(0);
}

StatusOr<Source> ReadSlurm(const Reader& reader) {
  Source source;
  source.rank_name = "SLURM_PROCID";
  const char* size_name = reader.FirstSet({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  source.size_name = size_name != nullptr ? size_name : "SLURM_NTASKS";
  source.address_hint =
      "srun sets SLURM_STEP_NODELIST and SLURM_JOB_ID, from which they follow; "
      "or export both";
  RankEnvironment& e = source.environment;
  e.source = "slurm";
  CRIA_ASSIGN_OR_RETURN(e.rank,
                        reader.Required(source.rank_name, source.rank_name, 0, kWorldSizeMax - 1));
  CRIA_ASSIGN_OR_RETURN(e.world_size,
                        reader.Required(source.size_name, source.rank_name, 1, kWorldSizeMax));
  CRIA_ASSIGN_OR_RETURN(const std::optional<int> local_rank,
                        reader.Number("SLURM_LOCALID", 0, kWorldSizeMax - 1));
  e.local_rank = local_rank.value_or(0);
  CRIA_ASSIGN_OR_RETURN(const int local_size, SlurmLocalSize(reader));
  e.local_size = e.world_size == 1 ? 1 : std::min(local_size, e.world_size);
  CRIA_RETURN_IF_ERROR(CheckRanks(source, "SLURM_LOCALID", "tasks per node"));

  if (const char* list =
          reader.FirstSet({"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"})) {
    auto hosts = ExpandNodeList(*reader.Text(list), kWorldSizeMax);
    if (!hosts.ok()) return Annotate(hosts.status(), list);
    source.first_host = hosts->front();
  }
  const char* job = reader.FirstSet({"SLURM_JOB_ID", "SLURM_JOBID"});
  const char* step = reader.FirstSet({"SLURM_STEP_ID", "SLURM_STEPID"});
  if (job != nullptr) {
    e.job = StrCat("slurm/", *reader.Text(job), ".", step != nullptr ? *reader.Text(step) : "0");
    source.derived_port_key = e.job;
  }
  return source;
}

StatusOr<Source> ReadOpenMpi(const Reader& reader) {
  CRIA_ASSIGN_OR_RETURN(Source source,
                        ReadPlain(reader, "openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"));
  RankEnvironment& e = source.environment;
  source.address_hint =
      "mpirun -x MASTER_ADDR=<the host of rank 0> -x MASTER_PORT=<a free port> "
      "gives them to all ranks";
  if (e.local_size == e.world_size) source.first_host = "127.0.0.1";
  if (const char* job = reader.FirstSet({"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"})) {
    e.job = StrCat("openmpi/", *reader.Text(job));
    source.derived_port_key = e.job;
  }
  return source;
}

// torchrun's agents run as tasks of Slurm, one a node, and start the ranks themselves.
bool TorchrunInsideSlurm(const Reader& reader, const Source& torchrun, const Source& slurm) {
  if (torchrun.environment.source != "torchrun" || slurm.environment.source != "slurm")
    return false;
  const auto group = reader.Number("GROUP_RANK", 0, kWorldSizeMax - 1);
  const auto groups = reader.Number("GROUP_WORLD_SIZE", 1, kWorldSizeMax);
  if (!group.ok() || !groups.ok() || !group->has_value()) return false;
  return **group == slurm.environment.rank &&
         (!groups->has_value() || **groups == slurm.environment.world_size);
}

Status CheckAgreement(const Reader& reader, const Source& a, const Source& b) {
  if (a.environment.rank == b.environment.rank &&
      a.environment.world_size == b.environment.world_size) {
    return OkStatus();
  }
  if (TorchrunInsideSlurm(reader, a, b)) return OkStatus();
  return InvalidArgumentError(
      "which rank is this? ", a.environment.source, " says ", a.Brief(), ", but ",
      b.environment.source, " says ", b.Brief(), "; unset one, or choose with ", kLauncherVariable,
      "=", a.environment.source, " or ", kLauncherVariable, "=", b.environment.source);
}

Status FindMaster(const Reader& reader, Source* source) {
  RankEnvironment& e = source->environment;
  CRIA_ASSIGN_OR_RETURN(const std::optional<int> port, reader.Number("MASTER_PORT", 1, 65535));
  const std::string* address = reader.Text("MASTER_ADDR");
  if (address != nullptr) {
    e.master_address = *address;
  } else if (!source->first_host.empty()) {
    e.master_address = source->first_host;
  } else if (e.world_size > 1) {
    return InvalidArgumentError(source->Brief(),
                                ", but MASTER_ADDR is not set: ", source->address_hint);
  }
  if (port.has_value()) {
    e.master_port = *port;
  } else if (!source->derived_port_key.empty()) {
    e.master_port =
        kDerivedPortFirst + static_cast<int>(Hash64(source->derived_port_key) % kDerivedPortCount);
  } else if (e.world_size > 1) {
    return InvalidArgumentError(source->Brief(),
                                ", but MASTER_PORT is not set: ", source->address_hint);
  }
  return OkStatus();
}

// The launchers to ask: the chosen one, or all that name a rank.
StatusOr<std::vector<Source>> ReadSources(const Reader& reader) {
  struct Launcher {
    const char* name;
    const char* rank_name;
    StatusOr<Source> (*read)(const Reader&);
  };
  constexpr Launcher kLaunchers[] = {{"torchrun", "RANK", ReadTorchrun},
                                     {"slurm", "SLURM_PROCID", ReadSlurm},
                                     {"openmpi", "OMPI_COMM_WORLD_RANK", ReadOpenMpi}};
  const std::string* choice = reader.Text(kLauncherVariable);
  std::vector<Source> sources;
  for (const Launcher& launcher : kLaunchers) {
    const bool chosen = choice != nullptr && *choice == launcher.name;
    if (choice != nullptr && !chosen) continue;
    if (reader.Text(launcher.rank_name) == nullptr) {
      if (!chosen) continue;
      return InvalidArgumentError(kLauncherVariable, "=", *choice, ", but ", launcher.rank_name,
                                  " is not set");
    }
    CRIA_ASSIGN_OR_RETURN(Source source, launcher.read(reader));
    sources.push_back(std::move(source));
  }
  if (choice != nullptr && sources.empty()) {
    return InvalidArgumentError(kLauncherVariable, "=", *choice,
                                ": expected torchrun, slurm or openmpi");
  }
  return sources;
}

}  // namespace

EnvironmentVariables ProcessEnvironment() {
  EnvironmentVariables variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

StatusOr<RankEnvironment> ReadRankEnvironment(const EnvironmentVariables& variables) {
  const Reader reader(variables);
  CRIA_ASSIGN_OR_RETURN(std::vector<Source> sources, ReadSources(reader));
  if (sources.empty()) return RankEnvironment();
  for (size_t i = 1; i < sources.size(); ++i) {
    CRIA_RETURN_IF_ERROR(CheckAgreement(reader, sources.front(), sources[i]));
  }
  CRIA_RETURN_IF_ERROR(FindMaster(reader, &sources.front()));
  return std::move(sources.front().environment);
}

}  // namespace cria::comm
