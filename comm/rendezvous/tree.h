// The tree of the rendezvous, as arithmetic on positions: 0 is the master, 1 .. n are the ranks in
// the order in which they came.
//
//   degree 3, 10 ranks:          0
//                     1          2          3
//                  4  5  6    7  8  9      10
//
// A parent has come before its children, so that nobody ever waits for an address, and those that
// come late are leaves. Thread-safe: values.

#ifndef CRIA_COMM_RENDEZVOUS_TREE_H_
#define CRIA_COMM_RENDEZVOUS_TREE_H_

#include <algorithm>
#include <cstdint>

namespace cria::comm {

inline constexpr int kTreeDegreeMax = 1024;

struct TreeShape {
  int num_ranks = 1;
  int degree = 32;

  int Parent(int position) const { return (position - 1) / degree; }
  // Positions [first, last) of the children.
  int FirstChild(int position) const { return Clamp(int64_t{position} * degree + 1); }
  int LastChild(int position) const { return Clamp(int64_t{position} * degree + 1 + degree); }
  // The ranks at and below a position.
  int SubtreeSize(int position) const {
    int size = 0;
    int64_t first = position;
    int64_t last = position;
    while (first <= num_ranks) {
      size += static_cast<int>(std::min<int64_t>(last, num_ranks) - first + 1);
      first = first * degree + 1;
      last = last * degree + degree;
    }
    return size;
  }
  // Hops from a position to the master.
  int Depth(int position) const {
    int depth = 0;
    for (; position > 0; position = Parent(position)) ++depth;
    return depth;
  }

 private:
  int Clamp(int64_t position) const {
    return static_cast<int>(std::min<int64_t>(position, int64_t{num_ranks} + 1));
  }
};

}  // namespace cria::comm

#endif  // CRIA_COMM_RENDEZVOUS_TREE_H_
