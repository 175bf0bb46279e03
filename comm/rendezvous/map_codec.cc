#include "comm/rendezvous/map_codec.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "comm/rendezvous/rank_environment.h"

namespace cria::comm {
namespace {

constexpr uint32_t kMagic = 0x314d5243;  // "CRM1"
constexpr uint64_t kVersion = 2;
constexpr size_t kDigestBytes = 8;

enum ColumnForm : uint64_t { kDifferences = 0, kRuns = 1, kPairsOfBytes = 2 };

// What one hexadecimal digit of a random name carries is half a byte; shorter tails than this do
// not pay for their length.
constexpr size_t kHexTailMin = 6;
constexpr std::string_view kHexDigits = "0123456789abcdef";

// How many of the last characters are lower-case hexadecimal digits, if they are worth it; even.
size_t HexTail(std::string_view text) {
  size_t tail = 0;
  while (tail < text.size() &&
         kHexDigits.find(text[text.size() - 1 - tail]) != std::string_view::npos) {
    ++tail;
  }
  tail -= tail % 2;
  return tail >= kHexTailMin ? tail : 0;
}

// A list of texts as runs of those that differ only in the hexadecimal digits at their end, if in
// anything: how many more, what stands before the digits (bytes shared with the run before, the
// rest), pairs of digits; then the digits of each, as bytes.
void WriteTexts(const std::vector<std::string_view>& texts, std::string* out) {
  WireWriter writer(out);
  std::string_view last;
  for (size_t i = 0; i < texts.size();) {
    const size_t tail = HexTail(texts[i]);
    const auto head_of = [tail](std::string_view text) {
      return text.substr(0, text.size() - tail);
    };
    const std::string_view head = head_of(texts[i]);
    size_t end = i + 1;
    while (end < texts.size() && HexTail(texts[end]) == tail && head_of(texts[end]) == head) ++end;
    const auto [differs, ignored] = std::mismatch(
        head.begin(), head.begin() + std::min(head.size(), last.size()), last.begin());
    const auto shared = static_cast<size_t>(differs - head.begin());
    writer.Varint(end - i - 1);
    writer.Varint(shared);
    writer.Text(head.substr(shared));
    writer.Varint(tail / 2);
    for (; i < end; ++i) {
      for (size_t c = head.size(); c < texts[i].size(); c += 2) {
        out->push_back(static_cast<char>(kHexDigits.find(texts[i][c]) << 4 |
                                         kHexDigits.find(texts[i][c + 1])));
      }
    }
    last = head;
  }
}

class TextReader {
 public:
  TextReader(WireReader* reader, size_t bytes_max) : reader_(reader), bytes_max_(bytes_max) {}
  const std::string& Read() {
    if (left_in_run_ == 0) {
      left_in_run_ = 1 + reader_->VarintUpTo(kWorldSizeMax);
      head_.resize(reader_->VarintUpTo(head_.size()));
      head_ += reader_->Text(bytes_max_ - head_.size());
      pairs_ = reader_->VarintUpTo((bytes_max_ - head_.size()) / 2);
    }
    --left_in_run_;
    text_ = head_;
    for (const char c : reader_->Bytes(pairs_)) {
      const auto byte = static_cast<uint8_t>(c);
      text_.push_back(kHexDigits[byte >> 4]);
      text_.push_back(kHexDigits[byte & 15]);
    }
    return text_;
  }

 private:
  WireReader* reader_;
  const size_t bytes_max_;
  uint64_t left_in_run_ = 0;
  std::string head_;
  size_t pairs_ = 0;
  std::string text_;
};

// Stands for the process number in the name of a socket, which often has it.
constexpr char kPidMark = 1;

std::string WithoutPid(const RankInfo& info) {
  std::string name = info.shm_socket;
  const std::string pid = StrCat(info.pid);
  if (const size_t found = name.find(pid); found != std::string::npos) {
    name.replace(found, pid.size(), 1, kPidMark);
  }
  return name;
}

std::string WithPid(std::string name, int64_t pid) {
  if (const size_t found = name.find(kPidMark); found != std::string::npos) {
    name.replace(found, 1, StrCat(pid));
  }
  return name;
}

// A column of numbers as differences to the one before (wrapping), as runs of equal differences, or
// as they are in two bytes each: the shortest.
void WriteColumn(const std::vector<int64_t>& values, std::string* out) {
  std::string plain;
  std::string runs;
  WireWriter plain_writer(&plain);
  WireWriter runs_writer(&runs);
  uint64_t last = 0;
  int64_t run_difference = 0;
  uint64_t run = 0;
  for (const int64_t value : values) {
    const auto difference = static_cast<int64_t>(static_cast<uint64_t>(value) - last);
    last = static_cast<uint64_t>(value);
    plain_writer.Signed(difference);
    if (run > 0 && difference != run_difference) {
      runs_writer.Signed(run_difference);
      runs_writer.Varint(run);
      run = 0;
    }
    run_difference = difference;
    ++run;
  }
  if (run > 0) {
    runs_writer.Signed(run_difference);
    runs_writer.Varint(run);
  }
  const bool fits = std::all_of(values.begin(), values.end(),
                                [](int64_t value) { return value >= 0 && value <= 0xffff; });
  WireWriter writer(out);
  if (fits && 2 * values.size() < std::min(plain.size(), runs.size())) {
    writer.Varint(kPairsOfBytes);
    for (const int64_t value : values) {
      out->push_back(static_cast<char>(value & 0xff));
      out->push_back(static_cast<char>(value >> 8));
    }
    return;
  }
  writer.Varint(plain.size() <= runs.size() ? kDifferences : kRuns);
  out->append(plain.size() <= runs.size() ? plain : runs);
}

std::vector<int64_t> ReadColumn(WireReader* reader, size_t count) {
  const uint64_t form = reader->VarintUpTo(kPairsOfBytes);
  const bool runs = form == kRuns;
  std::vector<int64_t> values;
  values.reserve(count);
  if (form == kPairsOfBytes) {
    const std::string_view bytes = reader->Bytes(2 * count);
    for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
      values.push_back(static_cast<uint8_t>(bytes[i]) | static_cast<uint8_t>(bytes[i + 1]) << 8);
    }
  }
  uint64_t value = 0;
  while (form != kPairsOfBytes && values.size() < count && reader->ok()) {
    const auto difference = static_cast<uint64_t>(reader->Signed());
    const uint64_t run = runs ? reader->VarintUpTo(count - values.size()) : 1;
    if (run == 0) break;  // a run of nothing: not ours
    for (uint64_t i = 0; i < run; ++i) {
      value += difference;
      values.push_back(static_cast<int64_t>(value));
    }
  }
  values.resize(count, -1);  // too short: -1 is out of every column's range
  return values;
}

// The distinct texts of the map, in order of appearance, and each rank's place among them.
struct TextTable {
  std::vector<std::string_view> texts;
  std::vector<int64_t> index_of_rank;

  void Add(std::string_view text) {
    const auto [entry, added] = index_of_text.try_emplace(text, texts.size());
    if (added) texts.push_back(text);
    index_of_rank.push_back(static_cast<int64_t>(entry->second));
  }
  void Write(std::string* out) const {
    WireWriter writer(out);
    writer.Varint(texts.size());
    WriteTexts(texts, out);
    WriteColumn(index_of_rank, out);
  }

  std::unordered_map<std::string_view, size_t> index_of_text;
};

// Fills one text field of each rank. False when an index is out of range.
bool ReadTable(WireReader* reader, size_t bytes_max, std::string RankInfo::*field, RankMap* map) {
  const size_t count = reader->VarintUpTo(map->size());
  std::vector<std::string> texts;
  texts.reserve(count);
  TextReader text_reader(reader, bytes_max);
  for (size_t i = 0; i < count && reader->ok(); ++i) texts.push_back(text_reader.Read());
  const std::vector<int64_t> index_of_rank = ReadColumn(reader, map->size());
  for (size_t rank = 0; rank < map->size(); ++rank) {
    const auto index = static_cast<uint64_t>(index_of_rank[rank]);
    if (index >= texts.size()) return false;
    (*map)[rank].*field = texts[index];
  }
  return true;
}

Status BadMap(std::string_view bytes, std::string_view what) {
  return DataLossError("rank map of ", bytes.size(), " bytes: ", what);
}

}  // namespace

Status CheckRankInfo(const RankInfo& info) {
  if (info.host.size() > kHostBytesMax || info.address.size() > kAddressBytesMax ||
      info.shm_socket.size() > kShmSocketBytesMax) {
    return InvalidArgumentError("rank record: host, address and socket have ", info.host.size(),
                                ", ", info.address.size(), " and ", info.shm_socket.size(),
                                " bytes; at most ", kHostBytesMax, ", ", kAddressBytesMax, " and ",
                                kShmSocketBytesMax, " can be sent");
  }
  if (info.shm_socket.find(kPidMark) != std::string::npos) {
    return InvalidArgumentError("rank record: the socket's name has a control character");
  }
  if (info.port < 0 || info.port > 65535 || info.pid < 0) {
    return InvalidArgumentError("rank record: port ", info.port, ", pid ", info.pid,
                                ": out of range");
  }
  return OkStatus();
}

std::string EncodeRankMap(const RankMap& map) {
  TextTable hosts;
  TextTable addresses;
  std::vector<int64_t> ports;
  std::vector<int64_t> pids;
  for (const RankInfo& info : map) {
    CRIA_CHECK(CheckRankInfo(info).ok());
    hosts.Add(info.host);
    addresses.Add(info.address);
    ports.push_back(info.port);
    pids.push_back(info.pid);
  }
  std::string bytes;
  WireWriter writer(&bytes);
  writer.Fixed32(kMagic);
  writer.Varint(kVersion);
  writer.Varint(map.size());
  hosts.Write(&bytes);
  addresses.Write(&bytes);
  WriteColumn(ports, &bytes);
  WriteColumn(pids, &bytes);
  std::vector<std::string> names;
  for (const RankInfo& info : map) names.push_back(WithoutPid(info));
  WriteTexts({names.begin(), names.end()}, &bytes);
  writer.Fixed64(Hash64(bytes));
  return bytes;
}

StatusOr<RankMap> DecodeRankMap(std::string_view bytes, int world_size) {
  if (bytes.size() < kDigestBytes) return BadMap(bytes, "too short");
  const std::string_view body = bytes.substr(0, bytes.size() - kDigestBytes);
  WireReader reader(body);
  if (reader.Fixed32() != kMagic) return BadMap(bytes, "not a rank map");
  if (const uint64_t version = reader.Varint(); version != kVersion) {
    return BadMap(bytes, StrCat("version ", version, ", this program reads ", kVersion));
  }
  if (DigestOfEncodedMap(bytes) != Hash64(body)) return BadMap(bytes, "checksum mismatch");
  if (const uint64_t ranks = reader.Varint(); ranks != static_cast<uint64_t>(world_size)) {
    return BadMap(bytes, StrCat(ranks, " ranks, expected ", world_size));
  }
  RankMap map(static_cast<size_t>(world_size));
  if (!ReadTable(&reader, kHostBytesMax, &RankInfo::host, &map)) return BadMap(bytes, "hosts");
  if (!ReadTable(&reader, kAddressBytesMax, &RankInfo::address, &map)) {
    return BadMap(bytes, "addresses");
  }
  const std::vector<int64_t> ports = ReadColumn(&reader, map.size());
  const std::vector<int64_t> pids = ReadColumn(&reader, map.size());
  TextReader sockets(&reader, kShmSocketBytesMax);
  for (size_t rank = 0; rank < map.size() && reader.ok(); ++rank) {
    if (ports[rank] < 0 || ports[rank] > 65535 || pids[rank] < 0) {
      return BadMap(bytes, StrCat("rank ", rank, ": port ", ports[rank], ", pid ", pids[rank]));
    }
    map[rank].port = static_cast<int>(ports[rank]);
    map[rank].pid = pids[rank];
    map[rank].shm_socket = WithPid(sockets.Read(), pids[rank]);
  }
  if (!reader.ok()) return BadMap(bytes, "ends early or has a value out of range");
  if (!reader.rest().empty()) {
    return BadMap(bytes, StrCat(reader.rest().size(), " bytes too many"));
  }
  return map;
}

uint64_t DigestOfEncodedMap(std::string_view bytes) {
  CRIA_CHECK(bytes.size() >= kDigestBytes);
  return WireReader(bytes.substr(bytes.size() - kDigestBytes)).Fixed64();
}

void WriteRecord(const RankRecord& record, WireWriter* writer) {
  writer->Varint(static_cast<uint64_t>(record.rank));
  writer->Text(record.info.host);
  writer->Text(record.info.address);
  writer->Varint(static_cast<uint64_t>(record.info.port));
  writer->Text(record.info.shm_socket);
  writer->Varint(static_cast<uint64_t>(record.info.pid));
}

RankRecord ReadRecord(WireReader* reader) {
  RankRecord record;
  record.rank = static_cast<int>(reader->VarintUpTo(kWorldSizeMax - 1));
  record.info.host = reader->Text(kHostBytesMax);
  record.info.address = reader->Text(kAddressBytesMax);
  record.info.port = static_cast<int>(reader->VarintUpTo(65535));
  record.info.shm_socket = reader->Text(kShmSocketBytesMax);
  record.info.pid = static_cast<int64_t>(reader->VarintUpTo(std::numeric_limits<int64_t>::max()));
  return record;
}

}  // namespace cria::comm
