#include "engine/answers.h"

#include <fmt/format.h>

#include "engine/stop_text.h"

namespace mneme::engine {
namespace {

std::string DurabilityName(v1::Durability durability) {
  switch (durability) {
    case v1::DURABILITY_SYNCED:
      return "synced";
    case v1::DURABILITY_OS:
      return "os";
    default:
      return "memory";
  }
}

// Text fields of the protocol hold UTF-8.
std::string Hex(ByteSpan bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

std::string TextOf(const memory::Digest& digest) { return std::string(memory::TextOf(digest)); }

uint64_t TokensIn(const v1::TurnRecord& record, v1::TokenRole role) {
  uint64_t tokens = 0;
  for (const v1::TurnPart& part : record.parts()) {
    if (part.role() == role) tokens += static_cast<uint64_t>(part.token_ids_size());
  }
  return tokens;
}

template <typename Message>
std::string HashOf(Message request) {
  request.clear_idempotency_key();
  // With its kind: an append and a generate of the same fields are the same bytes.
  const std::string bytes = request.GetTypeName() + request.SerializeAsString();
  return TextOf(memory::Sha256(AsBytes(bytes)));
}

}  // namespace

v1::Head HeadOf(const v1::HeadRecord& head) {
  v1::Head made;
  made.set_turn(head.turn());
  made.set_position(head.position());
  made.set_chain_hash(head.chain_hash());
  return made;
}

v1::Receipt ReceiptOf(const std::string& session, const memory::Receipt& receipt) {
  v1::Receipt made;
  made.set_session(session);
  made.mutable_head()->set_turn(receipt.turn.value);
  made.mutable_head()->set_position(receipt.position);
  made.mutable_head()->set_chain_hash(TextOf(receipt.chain.bytes));
  made.set_store_id(Hex(ByteSpan(receipt.store.bytes.data(), receipt.store.bytes.size())));
  made.set_epoch(receipt.epoch);
  made.set_commit(receipt.commit_counter);
  made.set_durability(DurabilityName(receipt.durability));
  return made;
}

v1::Receipt ReceiptOf(const std::string& session, const memory::StoredTurn& turn) {
  const v1::TurnRecord& record = turn.record;
  v1::Receipt made;
  made.set_session(session);
  made.mutable_head()->set_turn(record.number());
  made.mutable_head()->set_position(record.first_position() +
                                    TokensIn(record, v1::TOKEN_ROLE_PROMPT) +
                                    TokensIn(record, v1::TOKEN_ROLE_GENERATED));
  made.mutable_head()->set_chain_hash(TextOf(turn.chain.bytes));
  made.set_store_id(Hex(AsBytes(record.store_id())));
  made.set_epoch(record.epoch());
  made.set_commit(record.commit_counter());
  made.set_durability(DurabilityName(record.durability()));
  return made;
}

v1::MemoryReport ReportOf(const Session& session) {
  v1::MemoryReport report;
  const MemoryParts& parts = session.parts;
  const uint64_t position = session.position();
  if (session.memory != nullptr) {
    report.set_restored_tokens(parts.restored);
    report.set_replayed_tokens(parts.replayed);
    report.set_fresh_tokens(parts.fresh);
  }
  report.set_pending_tokens(session.head.position() > position ? session.head.position() - position
                                                               : 0);
  const bool disk = parts.from_disk || parts.pages_from_disk > 0;
  report.set_tier(disk ? "disk" : (parts.restored > 0 ? "host" : "none"));
  report.set_restore_ms(parts.restore_ms);
  report.set_miss_reason(parts.miss_reason);
  report.set_pages_from_disk(parts.pages_from_disk);
  report.set_exact(true);
  return report;
}

std::string StopName(v1::StopReason reason) {
  switch (reason) {
    case v1::STOP_REASON_END:
    case v1::STOP_REASON_TOOL_CALL:
      return "stop";
    case v1::STOP_REASON_LENGTH:
      return "max_tokens";
    case v1::STOP_REASON_STRING:
      return "stop_string";
    case v1::STOP_REASON_CANCELLED:
      return "cancelled";
    case v1::STOP_REASON_CONTEXT:
      return "context_limit";
    case v1::STOP_REASON_DISCONNECTED:
      return "disconnected";
    case v1::STOP_REASON_DEADLINE:
      return "deadline";
    default:
      return "";
  }
}

std::string AnswerText(const v1::TurnRecord& record, const model::Tokenizer& tokenizer,
                       const std::vector<int32_t>& end_ids) {
  std::vector<int32_t> ids;
  for (const v1::TurnPart& part : record.parts()) {
    if (part.role() != v1::TOKEN_ROLE_GENERATED) continue;
    ids.insert(ids.end(), part.token_ids().begin(), part.token_ids().end());
  }
  if (record.stop_reason() == v1::STOP_REASON_END && !ids.empty()) {
    for (const int32_t id : end_ids) {
      if (ids.back() != id) continue;
      ids.pop_back();
      break;
    }
  }
  const std::string text = tokenizer.Decode(ids, model::SpecialText::kHide);
  StopText stop({record.sampling().stop_strings().begin(), record.sampling().stop_strings().end()});
  std::string shown = stop.Push(text);
  return shown + stop.Finish();
}

v1::Event RecordedAnswer(const Parts& parts, const Session& session,
                         const memory::StoredTurn& turn) {
  v1::Event event;
  const uint64_t prompt = TokensIn(turn.record, v1::TOKEN_ROLE_PROMPT);
  if (turn.record.kind() == v1::TURN_KIND_APPEND) {
    v1::Appended& appended = *event.mutable_appended();
    *appended.mutable_receipt() = ReceiptOf(session.name, turn);
    appended.set_tokens(prompt);
    *appended.mutable_memory() = ReportOf(session);
    return event;
  }
  v1::Done& done = *event.mutable_done();
  *done.mutable_receipt() = ReceiptOf(session.name, turn);
  done.set_stop_reason(StopName(turn.record.stop_reason()));
  done.set_text(AnswerText(turn.record, parts.tokenizer(), parts.end_ids));
  done.set_prompt_tokens(prompt);
  done.set_generated_tokens(TokensIn(turn.record, v1::TOKEN_ROLE_GENERATED));
  done.set_truncated(turn.record.truncated());
  *done.mutable_memory() = ReportOf(session);
  return event;
}

std::string RequestHash(const v1::AppendRequest& request) { return HashOf(request); }
std::string RequestHash(const v1::GenerateRequest& request) { return HashOf(request); }

}  // namespace mneme::engine
