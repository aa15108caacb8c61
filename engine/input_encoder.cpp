#include "engine/input_encoder.h"

#include <chrono>
#include <limits>
#include <utility>

namespace mneme::engine {

InputEncoder::InputEncoder(const model::Tokenizer& tokenizer, const model::ChatTemplate& chat,
                           int32_t vocab, Deliver deliver)
    : tokenizer_(tokenizer),
      chat_(chat),
      vocab_(vocab),
      deliver_(std::move(deliver)),
      orders_(std::numeric_limits<size_t>::max()),
      thread_([this] { Work(); }) {}

void InputEncoder::Encode(Order order) {
  // Only a closed queue refuses, and then nobody waits for it any more.
  static_cast<void>(orders_.Push(std::move(order)).has_value());
}

void InputEncoder::Stop() {
  stop_.store(true);
  orders_.Close();
  if (thread_.joinable()) thread_.join();
}

void InputEncoder::Work() {
  while (!orders_.closed()) {
    for (const Order& order : orders_.Drain(std::chrono::hours(1))) {
      if (stop_.load()) return;
      const bool wanted = !order.call->cancelled() && !order.call->disconnected();
      deliver_({.ticket = order.ticket,
                .input = wanted ? EncodeInput(order.call->request(), order.end, tokenizer_, chat_,
                                              vocab_)
                                : Fail(ErrorCode::kCancelled, "encode input: stopped on request")});
    }
  }
}

}  // namespace mneme::engine
