#include "comm/algorithms/parts.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.h"

namespace cria::comm {
namespace {

void AppendPiece(const Part& piece, std::vector<Part>* pieces) {
  if (piece.count == 0) return;
  if (!pieces->empty() && pieces->back().offset + pieces->back().count == piece.offset) {
    pieces->back().count += piece.count;
  } else {
    pieces->push_back(piece);
  }
}

}  // namespace

Part EvenPart(int64_t count, int n, int64_t align, int i) {
  const int64_t units = count / align + (count % align != 0 ? 1 : 0);
  const int64_t least = units / n;
  const int64_t extra = units % n;
  const int64_t begin = i * least + std::min<int64_t>(i, extra);
  const int64_t end = begin + least + (i < extra ? 1 : 0);
  // The last unit may be cut: its end is `count`, not a multiple of align.
  const int64_t offset = begin == units ? count : begin * align;
  return {.offset = offset, .count = (end == units ? count : end * align) - offset};
}

Parts Parts::Even(int64_t count, int n, int64_t align) {
  Parts parts;
  parts.size_ = n;
  parts.count_ = count;
  parts.align_ = align;
  return parts;
}

Parts Parts::List(std::vector<Part> pieces) {
  Parts parts;
  parts.size_ = static_cast<int>(pieces.size());
  parts.pieces_ = std::move(pieces);
  return parts;
}

Parts Parts::Lists(std::vector<Part> pieces, std::vector<int> first) {
  CRIA_CHECK(!first.empty() && static_cast<size_t>(first.back()) == pieces.size());
  Parts parts;
  parts.size_ = static_cast<int>(first.size()) - 1;
  parts.pieces_ = std::move(pieces);
  parts.first_ = std::move(first);
  return parts;
}

void Parts::Append(int begin, int end, std::vector<Part>* pieces) const {
  if (begin >= end) return;
  if (align_ > 0) {
    const Part first = EvenPart(count_, size_, align_, begin);
    const Part last = EvenPart(count_, size_, align_, end - 1);
    AppendPiece({first.offset, last.offset + last.count - first.offset}, pieces);
    return;
  }
  const auto from = static_cast<size_t>(begin);
  const auto to = static_cast<size_t>(end);
  const size_t first = first_.empty() ? from : static_cast<size_t>(first_[from]);
  const size_t last = first_.empty() ? to : static_cast<size_t>(first_[to]);
  for (size_t i = first; i < last; ++i) AppendPiece(pieces_[i], pieces);
}

std::vector<Part> Parts::Of(int begin, int end) const {
  std::vector<Part> pieces;
  Append(begin, end, &pieces);
  return pieces;
}

int64_t Parts::Start(int position) const {
  if (align_ > 0) return EvenPart(count_, size_, align_, position).offset;
  const auto i = static_cast<size_t>(position);
  const size_t piece = first_.empty() ? i : static_cast<size_t>(first_[i]);
  return piece < pieces_.size() ? pieces_[piece].offset : 0;
}

int64_t Parts::Count(int position) const {
  if (align_ > 0) return EvenPart(count_, size_, align_, position).count;
  const auto i = static_cast<size_t>(position);
  if (first_.empty()) return pieces_[i].count;
  int64_t count = 0;
  for (int k = first_[i]; k < first_[i + 1]; ++k) count += pieces_[static_cast<size_t>(k)].count;
  return count;
}

int64_t Parts::CountMax() const {
  if (align_ > 0) return size_ == 0 ? 0 : EvenPart(count_, size_, align_, 0).count;
  int64_t most = 0;
  for (int i = 0; i < size_; ++i) most = std::max(most, Count(i));
  return most;
}

}  // namespace cria::comm
