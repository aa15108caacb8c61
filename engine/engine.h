// Engine is the one thread that owns sessions and runs steps, with the log thread and the mover
// behind it: what the server calls a Service.
//
//   calls -> inbox -> engine thread -> events
//                      |  ^      |  ^      |  ^
//                      v  |      v  |      v  |
//                  log thread   mover,    encoder
//                               readers
//
// Owns:     its threads, sessions, page cache, step. Its inputs outlive it.
// Threads:  Submit, Health and Drain from any; Make, Stop and the destructor from one.
// Order:    Drain, Stop(kFinish), then the stores may be closed.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "engine/parts.h"
#include "engine/service.h"

namespace mneme::engine {

enum class StopMode : uint8_t {
  kFinish,  // the step ends, sealed chunks are written, the watermark is flushed
  kAtOnce   // as little as a killed process would do; for tests
};

class Engine : public Service {
 public:
  // What Make would refuse of these, before the model is loaded and the store is touched.
  // kInvalidArgument  an option is out of range, the cap holds no page group, or the tokenizer
  //                   cannot write the chat template
  static Status Check(const EngineOptions& options, const model::Tokenizer& tokenizer,
                      const memory::MemoryLayout& layout);

  // Removes from the page store what belongs to no committed turn, then starts.
  // Errors: as Check, and those of the stores and the backend
  static Result<std::unique_ptr<Engine>> Make(const EngineOptions& options,
                                              const EngineInputs& inputs);
  ~Engine() override;

  Status Submit(std::shared_ptr<Call> call) override;
  v1::Health Health() override;

  // From now on Submit answers `draining`. Waits until every call has ended, at most `wait_ms`;
  // then cancels those that are left. True when none had to be.
  bool Drain(int64_t wait_ms);

  // Ends what is in flight and joins the threads. Twice does nothing more.
  void Stop(StopMode mode);

  // What sessions are bound to, for people.
  const std::string& identity() const;

 private:
  class Core;
  explicit Engine(std::unique_ptr<Core> core);

  std::unique_ptr<Core> core_;
};

}  // namespace mneme::engine
