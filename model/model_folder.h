// ModelFolder: a checkpoint folder opened and checked as a whole: configuration, weights, our
// router and mixing files, and the tokenizer where there is one.
//
// Owns:     the mapped files, which its views look into; needed only until the model is packed.
// Errors:   as ModelConfig, WeightFolder, Weights, RouterWeights and Tokenizer; a message names
// file,
//           value, what was expected and what was found
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "memory/memory_layout.h"
#include "model/memory_needs.h"
#include "model/model_config.h"
#include "model/router_weights.h"
#include "model/tokenizer.h"
#include "model/weight_folder.h"
#include "model/weights.h"

namespace mneme::model {

class ModelFolder {
 public:
  // kInvalidArgument for an MHLA language model, which mhla_folder.h opens. Every error names the
  // folder.
  static Result<ModelFolder> Open(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return path_; }
  const ModelConfig& config() const { return config_; }
  const WeightFolder& files() const { return files_; }
  const Weights& weights() const { return weights_; }
  const RouterWeights& router() const { return router_; }

  // `native`, `mhla`, `hla`; empty: the folder's own choice. kInvalidArgument for other words and
  // for a reader the folder has no weights for.
  Result<memory::Reader> ChooseReader(std::string_view name) const;

  // Refuses a folder whose model does not fit into the machine's free memory.
  Status CheckFitsMachine(memory::Reader reader, kernels::Dtype page_dtype) const;

  // kCorruption where a number of the weights, the router or the mixing matrices is not finite,
  // which would else show in an answer first. Reads them all.
  Status CheckFinite() const;

  // kNotFound when the folder has no tokenizer.json: the model then speaks in ids only.
  Result<Tokenizer> OpenTokenizer() const;

 private:
  static Result<ModelFolder> OpenFiles(const std::filesystem::path& path);
  ModelFolder(std::filesystem::path path, ModelConfig config, WeightFolder files)
      : path_(std::move(path)), config_(std::move(config)), files_(std::move(files)) {}

  std::filesystem::path path_;
  ModelConfig config_;
  WeightFolder files_;
  Weights weights_;
  RouterWeights router_;
};

// Bytes of memory the machine can still give, from /proc/meminfo; 0 where that cannot be read.
uint64_t AvailableMemoryBytes();

}  // namespace mneme::model
