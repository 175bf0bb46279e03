#include "trainer/checkpoint/save_pieces.h"

#include <array>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "model/io/safetensors.h"
#include "trainer/checkpoint/common_status.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/shared_file.h"
#include "trainer/checkpoint/step_folder.h"

namespace cria::trainer {
namespace {

constexpr size_t kNumParts = std::size(kPartNames);

// What a rank tells rank 0 of its pieces: a list by part.
using PiecesByPart = std::array<std::vector<RankPiece>, kNumParts>;

size_t IndexOf(CheckpointPart part) { return static_cast<size_t>(part); }

Json EncodePiece(const CheckpointPieces::Piece& one) {
  const TensorPiece& p = one.piece;
  Json json;
  json["part"] = IndexOf(one.part);
  json["name"] = p.tensor.name;
  json["dtype"] = StDtypeName(p.tensor.dtype);
  json["shape"] = p.tensor.shape;
  json["first_row"] = p.first_row;
  json["first_column"] = p.first_column;
  json["columns"] = p.columns;
  json["begin"] = p.begin;
  json["end"] = p.end;
  return json;
}

StatusOr<std::string> EncodePieces(const CheckpointPieces& pieces) {
  Json list = Json::array();
  for (const CheckpointPieces::Piece& one : pieces.pieces) {
    const auto bytes = static_cast<uint64_t>(one.piece.num_elements()) *
                       static_cast<uint64_t>(one.piece.tensor.element_bytes());
    if (one.data.size() != bytes) {
      return InvalidArgumentError("piece of ", one.piece.tensor.name, ": ", one.data.size(),
                                  " bytes for ", one.piece.num_elements(), " elements");
    }
    list.push_back(EncodePiece(one));
  }
  return DumpJson(list);
}

Status DecodePieces(const std::string& text, int rank, PiecesByPart* out) {
  const std::string where = StrCat("pieces of rank ", rank);
  CRIA_ASSIGN_OR_RETURN(const Json list, ParseJson(text, where));
  for (const Json& json : list) {
    RankPiece one = {.rank = rank};
    TensorPiece& p = one.piece;
    CRIA_ASSIGN_OR_RETURN(const auto part, JsonGet<uint64_t>(json, "part", where));
    if (part >= kNumParts) return InvalidArgumentError(where, ": part ", part);
    CRIA_ASSIGN_OR_RETURN(p.tensor.name, JsonGet<std::string>(json, "name", where));
    CRIA_ASSIGN_OR_RETURN(const auto dtype, JsonGet<std::string>(json, "dtype", where));
    CRIA_ASSIGN_OR_RETURN(p.tensor.dtype, model::StDtypeFromName(dtype));
    CRIA_ASSIGN_OR_RETURN(p.tensor.shape, JsonGet<std::vector<int64_t>>(json, "shape", where));
    CRIA_ASSIGN_OR_RETURN(p.first_row, JsonGet<int64_t>(json, "first_row", where));
    CRIA_ASSIGN_OR_RETURN(p.first_column, JsonGet<int64_t>(json, "first_column", where));
    CRIA_ASSIGN_OR_RETURN(p.columns, JsonGet<int64_t>(json, "columns", where));
    CRIA_ASSIGN_OR_RETURN(p.begin, JsonGet<int64_t>(json, "begin", where));
    CRIA_ASSIGN_OR_RETURN(p.end, JsonGet<int64_t>(json, "end", where));
    (*out)[part].push_back(std::move(one));
  }
  return OkStatus();
}

// Rank 0 gets the text of every rank; others get nothing. Errors are the communicator's.
StatusOr<std::vector<std::string>> GatherTexts(comm::Communicator* world, const std::string& text) {
  const auto size = static_cast<int64_t>(text.size());
  std::vector<int64_t> sizes(static_cast<size_t>(world->size()));
  CRIA_RETURN_IF_ERROR(world
                           ->Gather({.input = &size,
                                     .output = sizes.data(),
                                     .count = 1,
                                     .dtype = comm::DataType::kInt64,
                                     .root = 0})
                           .Wait());
  if (world->rank() > 0) {
    CRIA_RETURN_IF_ERROR(
        world
            ->Send(
                {.buffer = text.data(), .count = size, .dtype = comm::DataType::kUint8, .peer = 0})
            .Wait());
    return std::vector<std::string>();
  }
  std::vector<std::string> texts = {text};
  for (int rank = 1; rank < world->size(); ++rank) {
    std::string& one = texts.emplace_back(static_cast<size_t>(sizes[rank]), '\0');
    CRIA_RETURN_IF_ERROR(world
                             ->Recv({.buffer = one.data(),
                                     .count = sizes[rank],
                                     .dtype = comm::DataType::kUint8,
                                     .peer = rank})
                             .Wait());
  }
  return texts;
}

// The tensors of each file, once it is sure that the pieces are all of them.
StatusOr<std::array<std::vector<TensorDescription>, kNumParts>> CoveredTensors(
    const CheckpointPieces& pieces, const std::vector<std::string>& texts) {
  PiecesByPart all;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    CRIA_RETURN_IF_ERROR(DecodePieces(texts[rank], static_cast<int>(rank), &all));
  }
  std::array<std::vector<TensorDescription>, kNumParts> tensors = {pieces.model, pieces.optimizer};
  std::set<std::string> names;
  for (const RankPiece& one : all[IndexOf(CheckpointPart::kState)]) {
    if (!names.insert(one.piece.tensor.name).second) continue;
    tensors[IndexOf(CheckpointPart::kState)].push_back(one.piece.tensor);
  }
  for (size_t part = 0; part < kNumParts; ++part) {
    CRIA_RETURN_IF_ERROR(Annotate(CheckCover(tensors[part], all[part]), kPartNames[part]));
  }
  return tensors;
}

// Rank 0's work before the others write.
StatusOr<std::unique_ptr<TempStepFolder>> MakeFiles(const std::string& checkpoints_dir,
                                                    const CheckpointState& state,
                                                    const CheckpointPieces& pieces,
                                                    const std::vector<std::string>& texts) {
  if (state.step < 0) return InvalidArgumentError("the step is negative");
  CRIA_ASSIGN_OR_RETURN(const auto tensors, CoveredTensors(pieces, texts));
  CRIA_RETURN_IF_ERROR(MakeDirs(checkpoints_dir));
  CRIA_ASSIGN_OR_RETURN(std::unique_ptr<TempStepFolder> folder,
                        TempStepFolder::Create(checkpoints_dir, state.step));
  for (size_t part = 0; part < kNumParts; ++part) {
    std::vector<model::TensorToStream> shapes;
    for (const TensorDescription& t : tensors[part]) {
      shapes.push_back({t.name, t.dtype, t.shape, {}});
    }
    CRIA_ASSIGN_OR_RETURN(const model::SafetensorsHeader header,
                          model::PlanSafetensors(shapes, PartMetadata(state.step)));
    CRIA_RETURN_IF_ERROR(SharedFile::Create(JoinPath(folder->path(), kPartNames[part]),
                                            header.bytes, header.file_bytes));
  }
  return folder;
}

// One file's pieces of this rank.
Status WritePart(const std::string& path, size_t part, const CheckpointPieces& pieces) {
  // Where each tensor lies is read from the file that rank 0 has made.
  CRIA_ASSIGN_OR_RETURN(const model::SafetensorsFile layout, model::SafetensorsFile::Open(path));
  CRIA_ASSIGN_OR_RETURN(const std::unique_ptr<SharedFile> file, SharedFile::Open(path));
  for (const CheckpointPieces::Piece& one : pieces.pieces) {
    if (IndexOf(one.part) != part) continue;
    const TensorDescription& tensor = one.piece.tensor;
    CRIA_RETURN_IF_ERROR(layout.DataOf(tensor.name, tensor.dtype, tensor.shape).status());
    const uint64_t start = layout.data_start() + layout.Find(tensor.name)->begin;
    const auto width = static_cast<uint64_t>(tensor.element_bytes());
    Status status;
    ForEachRun(one.piece, [&](int64_t in_tensor, int64_t in_piece, int64_t count) {
      if (!status.ok()) return;
      const std::string_view bytes = one.data.substr(static_cast<uint64_t>(in_piece) * width,
                                                     static_cast<uint64_t>(count) * width);
      status = file->WriteAt(start + static_cast<uint64_t>(in_tensor) * width, bytes);
    });
    CRIA_RETURN_IF_ERROR(status);
  }
  return file->Sync();
}

Status WriteMine(const std::string& folder, const CheckpointPieces& pieces) {
  if (!IsDir(folder)) {
    return NotFoundError("this rank does not see ", folder,
                         ", which rank 0 has just made: all ranks need a file system that they "
                         "share for checkpoints");
  }
  for (size_t part = 0; part < kNumParts; ++part) {
    CRIA_RETURN_IF_ERROR(WritePart(JoinPath(folder, kPartNames[part]), part, pieces));
  }
  return OkStatus();
}

// Rank 0's work after the others have written.
Status Finish(const CheckpointState& state, TempStepFolder* folder) {
  CheckpointManifest manifest{state, {}};
  for (const char* name : kPartNames) {
    const std::string path = JoinPath(folder->path(), name);
    CRIA_ASSIGN_OR_RETURN(const uint64_t bytes, FileSize(path));
    CRIA_ASSIGN_OR_RETURN(const std::string hash, HashFileHex(path));
    manifest.files.push_back({name, bytes, hash});
  }
  CRIA_ASSIGN_OR_RETURN(const std::string text, EncodeManifest(manifest));
  CRIA_RETURN_IF_ERROR(WriteFileAtomic(JoinPath(folder->path(), kManifestName), text));
  return folder->Publish();
}

Status SaveOnManyRanks(const std::string& checkpoints_dir, const CheckpointState& state,
                       const CheckpointPieces& pieces, comm::Communicator* world) {
  const StatusOr<std::string> mine = EncodePieces(pieces);
  CRIA_RETURN_IF_ERROR(CommonStatus(world, mine.status()));
  CRIA_ASSIGN_OR_RETURN(const std::vector<std::string> texts, GatherTexts(world, *mine));
  std::unique_ptr<TempStepFolder> folder;
  Status made;
  if (world->rank() == 0) {
    StatusOr<std::unique_ptr<TempStepFolder>> result =
        MakeFiles(checkpoints_dir, state, pieces, texts);
    made = result.status();
    if (made.ok()) folder = *std::move(result);
  }
  CRIA_RETURN_IF_ERROR(CommonStatus(world, made));
  CRIA_ASSIGN_OR_RETURN(const std::string path,
                        CommonText(world, folder != nullptr ? folder->path() : ""));
  CRIA_RETURN_IF_ERROR(CommonStatus(world, WriteMine(path, pieces)));
  return CommonStatus(world, folder != nullptr ? Finish(state, folder.get()) : OkStatus());
}

// One rank has everything, each tensor whole.
Status SaveOnOneRank(const std::string& checkpoints_dir, const CheckpointState& state,
                     const CheckpointPieces& pieces) {
  CRIA_ASSIGN_OR_RETURN(const std::string text, EncodePieces(pieces));
  CRIA_RETURN_IF_ERROR(CoveredTensors(pieces, {text}).status());
  CheckpointTensors tensors;
  std::vector<model::TensorToWrite>* const parts[] = {&tensors.model, &tensors.optimizer,
                                                      &tensors.state};
  for (const CheckpointPieces::Piece& one : pieces.pieces) {
    const TensorDescription& t = one.piece.tensor;
    parts[IndexOf(one.part)]->push_back({t.name, t.dtype, t.shape, one.data});
  }
  return SaveCheckpoint(checkpoints_dir, state, tensors);
}

}  // namespace

Status SaveCheckpointPieces(const std::string& checkpoints_dir, const CheckpointState& state,
                            const CheckpointPieces& pieces, comm::Communicator* world) {
  if (world == nullptr || world->size() == 1) {
    return SaveOnOneRank(checkpoints_dir, state, pieces);
  }
  return Annotate(SaveOnManyRanks(checkpoints_dir, state, pieces, world),
                  StrCat("save ", CheckpointDir(checkpoints_dir, state.step)));
}

}  // namespace cria::trainer
