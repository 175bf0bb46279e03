#include "model/io/pickle.h"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <utility>

namespace cria::model {
namespace {

constexpr size_t kMaxBytes = size_t{4} << 20;
constexpr uint32_t kNoneIndex = 0, kFalseIndex = 1, kTrueIndex = 2, kEmptyTupleIndex = 3;

// A name from a file, fit for a message.
std::string Shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 120)) {
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return out;
}

}  // namespace

// The stack machine. Values are immutable but for lists and dicts, which grow.
class PickleMachine {
 public:
  PickleMachine(std::string_view bytes, const std::string& where,
                const std::vector<std::string>& allowed)
      : bytes_(bytes), where_(where), allowed_(allowed) {
    for (const Kind kind : {Kind::kNone, Kind::kBool, Kind::kBool, Kind::kTuple}) Make(kind);
    pickle_.values_[kTrueIndex].integer = 1;
  }

  StatusOr<Pickle> Run() {
    if (bytes_.size() > kMaxBytes) {
      return InvalidArgumentError(where_, ": a pickle of ", bytes_.size(), " bytes, at most ",
                                  kMaxBytes);
    }
    while (!stopped_) {
      begin_ = at_;
      std::string_view opcode;
      CRIA_RETURN_IF_ERROR(Take(1, &opcode));
      CRIA_RETURN_IF_ERROR(Step(static_cast<unsigned char>(opcode[0])));
    }
    return std::move(pickle_);
  }

 private:
  using Kind = PickleValue::Kind;

  template <typename... Parts>
  Status Damaged(const Parts&... parts) const {
    return DataLossError(where_, ": byte ", begin_, ": ", parts...);
  }

  Status Take(size_t size, std::string_view* out) {
    if (size > bytes_.size() - at_) {
      return Damaged("the pickle ends at ", bytes_.size(), ", ", size, " bytes wanted at ", at_);
    }
    *out = bytes_.substr(at_, size);
    at_ += size;
    return OkStatus();
  }

  // A little-endian number of `size` bytes.
  Status TakeNumber(size_t size, uint64_t* out) {
    std::string_view raw;
    CRIA_RETURN_IF_ERROR(Take(size, &raw));
    *out = 0;
    for (size_t i = size; i-- > 0;) *out = *out << 8 | static_cast<unsigned char>(raw[i]);
    return OkStatus();
  }

  Status TakeLine(std::string_view* out) {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) return Damaged("a name without an end");
    *out = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return OkStatus();
  }

  uint32_t Make(Kind kind) {
    pickle_.values_.emplace_back().kind = kind;
    return static_cast<uint32_t>(pickle_.values_.size() - 1);
  }

  Status Push(uint32_t index) {
    stack_.push_back(index);
    return OkStatus();
  }

  Status PushInteger(int64_t integer) {
    const uint32_t index = Make(Kind::kInteger);
    pickle_.values_[index].integer = integer;
    return Push(index);
  }

  Status PushText(size_t length_bytes) {
    uint64_t size = 0;
    std::string_view text;
    CRIA_RETURN_IF_ERROR(TakeNumber(length_bytes, &size));
    CRIA_RETURN_IF_ERROR(Take(size, &text));
    const uint32_t index = Make(Kind::kText);
    pickle_.values_[index].text = text;
    return Push(index);
  }

  Status PushItems(Kind kind, std::vector<uint32_t> items) {
    const uint32_t index = Make(kind);
    pickle_.values_[index].items = std::move(items);
    return Push(index);
  }

  // The topmost values, which must not reach below the last mark.
  Status Pop(size_t count, std::vector<uint32_t>* out) {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() - floor < count) {
      return Damaged("the stack has ", stack_.size() - floor, " of ", count, " values");
    }
    out->assign(stack_.end() - static_cast<ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return OkStatus();
  }

  Status PopToMark(std::vector<uint32_t>* out) {
    if (marks_.empty()) return Damaged("no mark on the stack");
    const size_t floor = marks_.back();
    CRIA_RETURN_IF_ERROR(Pop(stack_.size() - floor, out));
    marks_.pop_back();
    return OkStatus();
  }

  // Adds to the list or dict on top of the stack.
  Status Extend(Kind kind, const std::vector<uint32_t>& items) {
    std::vector<uint32_t> top;
    CRIA_RETURN_IF_ERROR(Pop(1, &top));
    PickleValue& value = pickle_.values_[top[0]];
    const bool is_call = kind == Kind::kDict && value.kind == Kind::kCall;  // an OrderedDict
    if (value.kind != kind && !is_call) return Damaged("items for what is no list or dict");
    if (kind == Kind::kDict && items.size() % 2 != 0) return Damaged("a key without a value");
    // A call keeps what is set in it behind its global and its arguments.
    value.items.insert(value.items.end(), items.begin(), items.end());
    return Push(top[0]);
  }

  Status PushGlobal(std::string_view module, std::string_view name) {
    const std::string full = StrCat(module, " ", name);
    const auto found = std::find(allowed_.begin(), allowed_.end(), full);
    if (found == allowed_.end()) {
      return InvalidArgumentError(where_, ": byte ", begin_, ": the pickle wants ", Shown(module),
                                  ".", Shown(name), ", which is not among what is allowed here");
    }
    const uint32_t index = Make(Kind::kGlobal);
    pickle_.values_[index].integer = found - allowed_.begin();
    return Push(index);
  }

  Status Memoize(uint64_t key) {
    if (stack_.empty()) return Damaged("nothing to remember");
    memo_[key] = stack_.back();
    return OkStatus();
  }

  Status PutMemo(size_t size) {
    uint64_t key = 0;
    CRIA_RETURN_IF_ERROR(TakeNumber(size, &key));
    return Memoize(key);
  }

  Status GetMemo(size_t size) {
    uint64_t key = 0;
    CRIA_RETURN_IF_ERROR(TakeNumber(size, &key));
    const auto found = memo_.find(key);
    if (found == memo_.end()) return Damaged("nothing was remembered as ", key);
    return Push(found->second);
  }

  Status PushLong() {
    uint64_t size = 0, raw = 0;
    CRIA_RETURN_IF_ERROR(TakeNumber(1, &size));
    if (size > 8) return Damaged("an integer of ", size, " bytes");
    CRIA_RETURN_IF_ERROR(TakeNumber(size, &raw));
    if (size > 0 && size < 8 && (raw >> (8 * size - 1) & 1)) raw |= ~uint64_t{0} << 8 * size;
    return PushInteger(static_cast<int64_t>(raw));
  }

  // Big-endian, unlike everything else.
  Status PushFloat() {
    std::string_view raw;
    CRIA_RETURN_IF_ERROR(Take(8, &raw));
    uint64_t bits = 0;
    for (const char c : raw) bits = bits << 8 | static_cast<unsigned char>(c);
    const uint32_t index = Make(Kind::kFloat);
    pickle_.values_[index].real = std::bit_cast<double>(bits);
    return Push(index);
  }

  Status Reduce() {
    std::vector<uint32_t> call;
    CRIA_RETURN_IF_ERROR(Pop(2, &call));
    if (pickle_.at(call[0]).kind != Kind::kGlobal || pickle_.at(call[1]).kind != Kind::kTuple) {
      return Damaged("a call of what is no name with arguments");
    }
    return PushItems(Kind::kCall, std::move(call));
  }

  Status StackGlobal() {
    std::vector<uint32_t> names;
    CRIA_RETURN_IF_ERROR(Pop(2, &names));
    const PickleValue &module = pickle_.at(names[0]), &name = pickle_.at(names[1]);
    if (module.kind != Kind::kText || name.kind != Kind::kText) {
      return Damaged("a global whose name is no text");
    }
    return PushGlobal(module.text, name.text);
  }

  // The attributes of an object: an OrderedDict of a state dict has versions of modules there.
  Status Build() {
    std::vector<uint32_t> state;
    CRIA_RETURN_IF_ERROR(Pop(1, &state));
    if (stack_.empty() || pickle_.at(state[0]).kind != Kind::kDict) {
      return Damaged("attributes that are no dict");
    }
    return OkStatus();
  }

  Status Stop() {
    std::vector<uint32_t> root;
    CRIA_RETURN_IF_ERROR(Pop(1, &root));
    if (!stack_.empty() || !marks_.empty()) return Damaged("values left at the end");
    pickle_.root_ = root[0];
    stopped_ = true;
    return OkStatus();
  }

  Status TupleOf(size_t count) {
    std::vector<uint32_t> items;
    CRIA_RETURN_IF_ERROR(Pop(count, &items));
    return PushItems(Kind::kTuple, std::move(items));
  }

  Status Step(unsigned char opcode) {
    std::vector<uint32_t> items;
    uint64_t number = 0;
    switch (opcode) {
      case 0x80:  // PROTO
        CRIA_RETURN_IF_ERROR(TakeNumber(1, &number));
        if (number >= 2 && number <= 5) return OkStatus();
        return Damaged("pickle protocol ", number, "; 2 to 5 can be read");
      case 0x95:  // FRAME: a hint for reading ahead
        return TakeNumber(8, &number);
      case '.':
        return Stop();
      case 'N':
        return Push(kNoneIndex);
      case 0x88:
        return Push(kTrueIndex);
      case 0x89:
        return Push(kFalseIndex);
      case 'J':  // BININT, signed
        CRIA_RETURN_IF_ERROR(TakeNumber(4, &number));
        return PushInteger(static_cast<int32_t>(number));
      case 'K':
        CRIA_RETURN_IF_ERROR(TakeNumber(1, &number));
        return PushInteger(static_cast<int64_t>(number));
      case 'M':
        CRIA_RETURN_IF_ERROR(TakeNumber(2, &number));
        return PushInteger(static_cast<int64_t>(number));
      case 0x8a:
        return PushLong();
      case 'G':
        return PushFloat();
      case 'X':
        return PushText(4);
      case 0x8c:
        return PushText(1);
      case 0x8d:
        return PushText(8);
      case '(':
        marks_.push_back(stack_.size());
        return OkStatus();
      case ')':
        return Push(kEmptyTupleIndex);
      case 0x85:
        return TupleOf(1);
      case 0x86:
        return TupleOf(2);
      case 0x87:
        return TupleOf(3);
      case 't':
        CRIA_RETURN_IF_ERROR(PopToMark(&items));
        return PushItems(Kind::kTuple, std::move(items));
      case ']':
        return Push(Make(Kind::kList));
      case '}':
        return Push(Make(Kind::kDict));
      case 'a':
        CRIA_RETURN_IF_ERROR(Pop(1, &items));
        return Extend(Kind::kList, items);
      case 'e':
        CRIA_RETURN_IF_ERROR(PopToMark(&items));
        return Extend(Kind::kList, items);
      case 's':
        CRIA_RETURN_IF_ERROR(Pop(2, &items));
        return Extend(Kind::kDict, items);
      case 'u':
        CRIA_RETURN_IF_ERROR(PopToMark(&items));
        return Extend(Kind::kDict, items);
      case 'q':
        return PutMemo(1);
      case 'r':
        return PutMemo(4);
      case 0x94:  // MEMOIZE: under the number of the ones before it
        return Memoize(memo_.size());
      case 'h':
        return GetMemo(1);
      case 'j':
        return GetMemo(4);
      case 'c': {
        std::string_view module, name;
        CRIA_RETURN_IF_ERROR(TakeLine(&module));
        CRIA_RETURN_IF_ERROR(TakeLine(&name));
        return PushGlobal(module, name);
      }
      case 0x93:
        return StackGlobal();
      case 'R':
        return Reduce();
      case 'b':
        return Build();
      case 'Q':
        CRIA_RETURN_IF_ERROR(Pop(1, &items));
        return PushItems(Kind::kPersistent, std::move(items));
      default:
        return InvalidArgumentError(where_, ": byte ", begin_, ": opcode ",
                                    StrFormat("0x%02x", opcode),
                                    " is not among those of plain tensors");
    }
  }

  const std::string_view bytes_;
  const std::string where_;
  const std::vector<std::string>& allowed_;
  size_t at_ = 0;
  size_t begin_ = 0;  // of the opcode under way
  bool stopped_ = false;
  Pickle pickle_;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;  // sizes of the stack
  std::unordered_map<uint64_t, uint32_t> memo_;
};

StatusOr<Pickle> Pickle::Parse(std::string_view bytes, const std::string& where,
                               const std::vector<std::string>& allowed_globals) {
  return PickleMachine(bytes, where, allowed_globals).Run();
}

}  // namespace cria::model
