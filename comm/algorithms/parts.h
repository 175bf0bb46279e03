// How a buffer is cut among the members of a collective. All sizes are elements.
//
//   Even(10, 4, align 2): [0,4) [4,6) [6,8) [8,10)     whole cache lines, as equal as they get
//
// Thread-safe: values.

#ifndef CRIA_COMM_ALGORITHMS_PARTS_H_
#define CRIA_COMM_ALGORITHMS_PARTS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace cria::comm {

struct Part {
  int64_t offset = 0;
  int64_t count = 0;
};

// Part i of n of `count` elements; every part but the last non-empty one is a multiple of `align`.
// With fewer than n times `align` elements the last parts are empty.
Part EvenPart(int64_t count, int n, int64_t align, int i);

// The parts of the positions of a group. A position may have several pieces, which need not be
// neighbours (ranks of a host that are placed apart).
class Parts {
 public:
  // No parts: for operations that are cut anew.
  Parts() = default;

  // EvenPart for each of n positions. O(1).
  static Parts Even(int64_t count, int n, int64_t align);
  // One piece a position. O(n).
  static Parts List(std::vector<Part> pieces);
  // Position i has pieces[first[i] .. first[i + 1]). O(n).
  static Parts Lists(std::vector<Part> pieces, std::vector<int> first);

  int size() const { return size_; }

  // Appends the pieces of the positions [begin, end), neighbours joined, empty ones left out.
  void Append(int begin, int end, std::vector<Part>* pieces) const;
  std::vector<Part> Of(int begin, int end) const;
  std::vector<Part> Of(int position) const { return Of(position, position + 1); }
  // Where the first piece of a position starts.
  int64_t Start(int position) const;
  // Elements of one position; the most of any.
  int64_t Count(int position) const;
  int64_t CountMax() const;

 private:
  int size_ = 0;
  // Even:
  int64_t count_ = 0;
  int64_t align_ = 0;  // 0: listed
  // Listed:
  std::vector<Part> pieces_;
  std::vector<int> first_;  // empty: one piece each
};

}  // namespace cria::comm

#endif  // CRIA_COMM_ALGORITHMS_PARTS_H_
