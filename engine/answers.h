// What answers are made of: heads, receipts, memory reports, recorded answers.
//
// Threads:  engine thread only.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "engine/parts.h"
#include "engine/session.h"
#include "memory/turn_store.h"
#include "proto/mneme/v1/event.pb.h"

namespace mneme::engine {

v1::Head HeadOf(const v1::HeadRecord& head);
v1::Receipt ReceiptOf(const std::string& session, const memory::Receipt& receipt);
// Of a turn that was committed earlier.
v1::Receipt ReceiptOf(const std::string& session, const memory::StoredTurn& turn);
v1::MemoryReport ReportOf(const Session& session);

// "stop", "stop_string", ... as in Done.
std::string StopName(v1::StopReason reason);

// The text of a generated turn as it was shown: without its end token, cut at its stop string.
std::string AnswerText(const v1::TurnRecord& record, const model::Tokenizer& tokenizer,
                       const std::vector<int32_t>& end_ids);

// The answer that a request with this turn's idempotency key was given.
v1::Event RecordedAnswer(const Parts& parts, const Session& session,
                         const memory::StoredTurn& turn);

// SHA-256 of what a client asked, without what may differ between two tries.
std::string RequestHash(const v1::AppendRequest& request);
std::string RequestHash(const v1::GenerateRequest& request);

}  // namespace mneme::engine
