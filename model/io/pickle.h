// A pickle read as plain values: Python's serialisation without Python, and without its dangers.
//
//   CRIA_ASSIGN_OR_RETURN(const Pickle pickle, Pickle::Parse(bytes, "model.pth: data.pkl", rules));
//   const PickleValue& root = pickle.at(pickle.root());
//
// A pickle is a program for a stack machine. Here it only builds data: a global is a name, and
// calling one makes a value that holds the name and the arguments; nothing is imported or run. A
// global that `allowed_globals` does not have is an error that names it.
//
// Understood: the opcodes of protocols 2 to 4 that plain data is written with (None, booleans,
// integers of 64 bits, floats, text, lists, tuples, dicts), memo, globals, REDUCE, BUILD (of a
// dict: attributes, which are dropped), persistent ids. Every file is taken as hostile: values are
// numbered, not nested, so that no input recurses, cycles are harmless, and memory is linear in the
// bytes, of which there may be 4 MiB (the largest Llama's are a tenth of that). Thread-safe after
// Parse.
// Source: CPython, Lib/pickletools.py.

#ifndef CRIA_MODEL_IO_PICKLE_H_
#define CRIA_MODEL_IO_PICKLE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace cria::model {

struct PickleValue {
  enum class Kind {
    kNone,
    kBool,        // integer: 0 or 1
    kInteger,     // integer
    kFloat,       // real
    kText,        // text
    kTuple,       // items
    kList,        // items
    kDict,        // items: key, value, key, value, ...
    kGlobal,      // integer: its index in allowed_globals
    kCall,        // items: the global, the tuple of arguments
    kPersistent,  // items: the id
  };
  Kind kind = Kind::kNone;
  int64_t integer = 0;
  double real = 0;
  std::string_view text;        // a view into the pickle's bytes
  std::vector<uint32_t> items;  // indices for Pickle::at
};

class Pickle {
 public:
  // `bytes` outlives the pickle; `where` begins the messages. DataLoss with the byte's offset;
  // InvalidArgument for an opcode or a global that is not understood. allowed_globals: "module
  // name".
  static StatusOr<Pickle> Parse(std::string_view bytes, const std::string& where,
                                const std::vector<std::string>& allowed_globals);

  uint32_t root() const { return root_; }
  const PickleValue& at(uint32_t index) const { return values_[index]; }

 private:
  friend class PickleMachine;
  std::vector<PickleValue> values_;
  uint32_t root_ = 0;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_IO_PICKLE_H_
