#include "trainer/models/model_files.h"

#include "base/file.h"
#include "trainer/models/gguf_model.h"
#include "trainer/models/hf_model.h"
#include "trainer/models/meta_model.h"
#include "trainer/models/run_model.h"

namespace cria::trainer {

StatusOr<ModelFiles> OpenModel(const std::string& path) {
  if (!Exists(path)) return NotFoundError("model ", path, ": no such file or folder");
  if (!IsDir(path)) {
    if (LooksLikeGgufModel(path)) return OpenGgufModel(path);
    return InvalidArgumentError(path,
                                ": a file, but none of GGUF; a model of another format is a "
                                "folder");
  }
  if (LooksLikeHfModel(path)) return OpenHfModel(path);
  if (LooksLikeRun(path)) return OpenRunModel(path);
  if (LooksLikeMetaModel(path)) return OpenMetaModel(path, {});
  return NotFoundError(
      path,
      ": no model: looked for config.json (a folder of Hugging Face's), "
      "params.json (of Meta's), checkpoints/ or manifest.json (a run of cria train)");
}

}  // namespace cria::trainer
