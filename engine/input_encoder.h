// InputEncoder makes tokens of what requests bring, on a thread of its own where there is much of
// it: a megabyte of text takes up to a second (measured: 0.83 s for one of random letters without a
// space), and nobody's next token waits for that.
//
// Owns:     its thread. Tokenizer and template must outlive it.
// Threads:  Order and Stop from the engine; inputs are delivered on the encoder's thread, in the
//           order of the orders.
// Limits:   one order a session, since a session has one write in flight.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "base/inbox.h"
#include "base/result.h"
#include "engine/call.h"
#include "engine/turn_input.h"

namespace mneme::engine {

// Up to here the engine's thread encodes itself: at most 4 ms, and no wait behind a long input.
inline constexpr size_t kInlineInputBytesMax = 4096;

struct EncodedInput {
  uint64_t ticket = 0;  // as given with the order
  Result<TurnInput> input;
};

class InputEncoder {
 public:
  using Deliver = std::function<void(EncodedInput)>;

  // `deliver` is called on the encoder's thread and must not block.
  InputEncoder(const model::Tokenizer& tokenizer, const model::ChatTemplate& chat, int32_t vocab,
               Deliver deliver);
  ~InputEncoder() { Stop(); }
  InputEncoder(const InputEncoder&) = delete;
  InputEncoder& operator=(const InputEncoder&) = delete;

  // `call` is an append or a generate; `end` is how its session's log ends. One that nobody wants
  // any more is answered kCancelled without work.
  struct Order {
    uint64_t ticket = 0;
    std::shared_ptr<const Call> call;
    model::LogEnd end = model::LogEnd::kEmpty;
  };
  void Encode(Order order);

  // At once, without answers to what is left.
  void Stop();

 private:
  void Work();

  const model::Tokenizer& tokenizer_;
  const model::ChatTemplate& chat_;
  const int32_t vocab_;
  const Deliver deliver_;
  Inbox<Order> orders_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace mneme::engine
