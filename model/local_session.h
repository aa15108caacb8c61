// LocalSession is a session in this process alone, without a log or a store: `mneme run`, the
// evaluation and comparisons with other implementations read and generate through it. It runs the
// same steps over the same memory as the server's sessions do.
//
// LocalModel owns what such sessions share: the packed model, the backend's threads, the page cache
// and the step.
//
// Threads:  one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "kernels/kernel_table.h"
#include "memory/session_memory.h"
#include "model/loaded_model.h"
#include "model/model_folder.h"
#include "model/step.h"

namespace mneme::model {

struct LocalModelOptions {
  std::string reader;  // native, mhla or hla; empty: the folder's own choice
  kernels::Dtype page_dtype = kernels::Dtype::kF16;
  int threads = 1;
  int batch_max = 1;                            // rows that decode together
  uint64_t host_bytes_max = uint64_t{1} << 31;  // cap on pages and index entries, bytes
  // Above 0, for measuring: reader mhla with the newest so many chunks open (RouterWeights::
  // NewestOpen), whatever the folder has; `reader` is not asked.
  int newest_open = 0;
  // Called with parts done and in all while the weights are packed; may be empty.
  std::function<void(int done, int total)> progress;
};

class LocalModel {
 public:
  // What can be refused is refused before anything is packed:
  // kInvalidArgument    the folder has no such reader, or the cap holds no page group
  // kResourceExhausted  the model does not fit into the machine
  static Result<std::unique_ptr<LocalModel>> Load(const ModelFolder& folder,
                                                  const LocalModelOptions& options);

  // A native model of `config`'s size with random weights, for measuring (mhla with newest_open);
  // options.reader is not asked. kResourceExhausted as above.
  static Result<std::unique_ptr<LocalModel>> Random(const ModelConfig& config,
                                                    const LocalModelOptions& options);

  const LoadedModel& model() const { return *model_; }
  Step& step() { return *step_; }
  memory::PageCache& cache() { return *cache_; }

 private:
  LocalModel() = default;
  static Result<std::unique_ptr<LocalModel>> Make(const ModelConfig& config, const Weights& weights,
                                                  const RouterWeights& router,
                                                  memory::Reader reader,
                                                  const LocalModelOptions& options);

  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<kernels::Stream> stream_;
  std::unique_ptr<memory::PageCache> cache_;
  std::unique_ptr<Step> step_;
};

class LocalSession {
 public:
  // An empty session. The model must outlive it.
  explicit LocalSession(LocalModel& model);

  LocalSession(LocalSession&&) noexcept = default;
  LocalSession& operator=(LocalSession&&) noexcept = default;

  // Computes tokens that somebody else wrote. Every call is a run of its own, as a turn is.
  // `progress`, where given, is called after each slice with the tokens done; false stops early
  // (kCancelled).
  Status Read(std::span<const int32_t> tokens,
              const std::function<bool(size_t tokens_done)>& progress = {});

  // Draws the token after the last one.
  Result<int32_t> Next(const kernels::Sampling& sampling, std::span<float> logits = {});

  // Computes a token that the model drew itself.
  Status Feed(int32_t token);

  // Another session with the same past.
  LocalSession Fork() const { return LocalSession(*model_, memory_.Fork()); }

  uint64_t position() const { return memory_.position(); }
  const memory::SessionMemory& memory() const { return memory_; }

 private:
  LocalSession(LocalModel& model, memory::SessionMemory memory)
      : model_(&model), memory_(std::move(memory)) {}
  Status SealWhenFull();

  LocalModel* model_;
  memory::SessionMemory memory_;
};

}  // namespace mneme::model
