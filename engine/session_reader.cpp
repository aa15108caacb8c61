#include "engine/session_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "engine/answers.h"
#include "engine/turn_text.h"
#include "memory/ladder.h"

namespace mneme::engine {
namespace {

constexpr uint32_t kTurnsShown = 100;
constexpr uint32_t kSessionsShown = 100;
constexpr uint32_t kTokensExplained = 256;
constexpr int64_t kLookUs = 2'000;  // spent on sessions between two steps
// An answer stays well below what a connection may buffer.
constexpr size_t kAnswerBytesMax = 512 * 1024;

// One turn can be longer than an answer may be: the start of each part, and how much there is more.
void CutToFit(v1::TranscriptTurn* turn) {
  const size_t most = kAnswerBytesMax / static_cast<size_t>(turn->parts_size());
  for (v1::TranscriptPart& part : *turn->mutable_parts()) {
    std::string& text = *part.mutable_text();
    if (text.size() <= most) continue;
    size_t end = most;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
    const size_t cut = text.size() - end;
    text.resize(end);
    text += fmt::format(" [{} bytes more]", cut);
  }
}

std::string ReaderOf(const memory::StoredSession& stored) {
  return IdentityField(stored.record.identity_text(), "reader");
}

// Keeps those that are asked for, by name; true where there are more after them.
bool KeepPage(const v1::ListRequest& request, std::vector<memory::StoredSession>* sessions) {
  std::erase_if(*sessions, [&request](const memory::StoredSession& one) {
    return one.record.name() <= request.after() || one.head.turn() == 0;
  });
  std::sort(sessions->begin(), sessions->end(),
            [](const memory::StoredSession& a, const memory::StoredSession& b) {
              return a.record.name() < b.record.name();
            });
  const size_t most = request.sessions_max() == 0 ? kSessionsShown : request.sessions_max();
  if (sessions->size() <= most) return false;
  sessions->resize(most);
  return true;
}

}  // namespace

// Only the newest chunks can still be on their way to the disk, so a history of which none of them
// is there has lost the others too.
SessionReader::ChunkCounts SessionReader::ChunksOf(const memory::StoredSession& stored) const {
  const auto chunk_tokens = static_cast<uint64_t>(parts_.layout.chunk_tokens());
  ChunkCounts counts;
  std::string key = stored.head.newest_node();
  for (uint64_t looks = parts_.options.unsaved_tokens_max / chunk_tokens + 2;
       looks > 0 && !key.empty(); --looks) {
    const memory::NodeKey node_key{memory::DigestFrom(key)};
    const auto node = parts_.log().GetNode(node_key);
    if (!node || node->tokens() == 0) break;
    const uint64_t chunks = node->first_position() / node->tokens() + 1;
    counts.logged = std::max(counts.logged, chunks);
    const auto whole = parts_.inputs.pages->Has(node_key);
    if (whole && *whole) {
      counts.kept = chunks;
      break;
    }
    key = node->parent();
  }
  return counts;
}

uint64_t SessionReader::DiskBytesOf(const memory::StoredSession& stored,
                                    const ChunkCounts& chunks) const {
  if (stored.record.identity() != parts_.identity) return 0;  // laid out in another way
  return memory::HistoryBytes(parts_.layout, chunks.kept);
}

v1::TierBytes SessionReader::BytesOf(const memory::StoredSession& stored, const ChunkCounts& chunks,
                                     const Session* session) const {
  v1::TierBytes bytes;
  bytes.set_disk_bytes(DiskBytesOf(stored, chunks));
  if (session == nullptr || session->memory == nullptr) return bytes;
  const memory::SessionMemory& memory = *session->memory;
  uint64_t groups = 0;
  for (uint32_t chunk = 0; chunk < memory.chunk_count(); ++chunk) {
    for (int group = 0; group < memory.chunk(chunk).groups(); ++group)
      groups += memory.chunk(chunk).group(group) != nullptr ? 1 : 0;
  }
  bytes.set_host_bytes(groups * parts_.layout.group_bytes());
  bytes.set_index_bytes(memory.chunk_count() * (memory::ClosedChunk::IndexBytes(parts_.layout) +
                                                memory::ClosedChunk::KvBytes(parts_.layout)));
  bytes.set_open_bytes(memory.open_bytes() +
                       (session->at_head == nullptr ? 0 : session->at_head->open_bytes()));
  return bytes;
}

bool SessionReader::Advance() {
  if (look_.calls.empty()) {
    if (asking_.empty()) return false;
    std::shared_ptr<Call> call = std::move(asking_.front());
    asking_.pop_front();
    Begin(std::move(call));
  }
  v1::Event& answer = look_.answer;
  const int64_t until_us = parts_.clock.MonotonicUs() + kLookUs;
  while (look_.next < look_.sessions.size()) {
    const memory::StoredSession& stored = look_.sessions[look_.next++];
    if (answer.has_list()) {
      AddTo(answer.mutable_list(), stored);
    } else {
      AddTo(answer.mutable_stats(), stored);
    }
    if (parts_.clock.MonotonicUs() >= until_us) return true;
  }
  if (answer.has_stats()) AddServer(answer.mutable_stats());
  for (const auto& call : look_.calls) call->Finish(answer);
  look_ = {};
  return true;
}

// Only now is the list of sessions copied, and once for all who wait for the server's stats.
void SessionReader::Begin(std::shared_ptr<Call> call) {
  look_.sessions = parts_.log().ListSessions("");
  look_.calls.push_back(std::move(call));
  const v1::Request& request = look_.calls.front()->request();
  if (request.has_list()) {
    look_.answer.mutable_list()->set_more(KeepPage(request.list(), &look_.sessions));
    return;
  }
  look_.answer.mutable_stats();
  const auto asks_stats = [](const auto& waiting) { return waiting->request().has_stats(); };
  std::copy_if(asking_.begin(), asking_.end(), std::back_inserter(look_.calls), asks_stats);
  std::erase_if(asking_, asks_stats);
}

void SessionReader::AddTo(v1::StatsReply* reply, const memory::StoredSession& stored) const {
  const ChunkCounts chunks = ChunksOf(stored);
  v1::TierBytes& bytes = *reply->mutable_bytes();
  reply->set_sessions(reply->sessions() + 1);
  reply->set_turns(reply->turns() + stored.head.turn());
  reply->set_tokens(reply->tokens() + stored.head.position());
  reply->set_chunks(reply->chunks() + chunks.logged);
  bytes.set_disk_bytes(bytes.disk_bytes() + DiskBytesOf(stored, chunks));
}

void SessionReader::AddTo(v1::SessionList* list, const memory::StoredSession& stored) const {
  v1::SessionSummary& summary = *list->add_sessions();
  summary.set_session(stored.record.name());
  *summary.mutable_head() = HeadOf(stored.head);
  summary.set_reader(ReaderOf(stored));
  summary.set_created_us(static_cast<int64_t>(stored.record.created_wall_us()));
  summary.set_last_used_us(static_cast<int64_t>(stored.head.last_used_wall_us()));
  summary.set_refused(std::string(memory::NameOf(stored.condition)));
  summary.set_other_identity(stored.record.identity() != parts_.identity);
  *summary.mutable_bytes() =
      BytesOf(stored, ChunksOf(stored), parts_.sessions.Get(SessionId{stored.record.id()}));
}

// What is not kept by session.
void SessionReader::AddServer(v1::StatsReply* reply) const {
  v1::TierBytes& bytes = *reply->mutable_bytes();
  for (const auto& [id, session] : parts_.sessions.all()) {
    if (session->memory == nullptr) continue;
    bytes.set_open_bytes(bytes.open_bytes() + session->memory->open_bytes());
    if (session->at_head != nullptr)
      bytes.set_open_bytes(bytes.open_bytes() + session->at_head->open_bytes());
  }
  bytes.set_host_bytes(parts_.cache.group_bytes_used());
  bytes.set_index_bytes(parts_.cache.charged_bytes());
  const model::StepCounters& steps = parts_.step.counters();
  const EngineCounters& counters = parts_.counters;
  reply->set_tokens_computed(steps.prefill_tokens + steps.decode_tokens);
  reply->set_tokens_generated(counters.tokens_generated);
  reply->set_tokens_replayed(counters.tokens_replayed);
  reply->set_tokens_restored(counters.tokens_restored);
  reply->set_page_store_reads(steps.group_reads);
  reply->set_page_store_read_bytes(steps.group_read_bytes);
  const memory::PageStoreCounters pages = parts_.inputs.pages->counters();
  reply->set_page_store_writes(pages.writes);
  reply->set_page_store_mends(pages.mends);
  reply->set_pages_evicted_from_host(parts_.cache.dropped_groups());
  reply->set_pages_missed(counters.pages_missed);
  reply->set_sessions_refused(parts_.log().SessionsRefused());
  reply->set_log_lines_lost(LogLinesLost());
  reply->set_sessions_running(static_cast<uint64_t>(admission_.running()));
  reply->set_host_bytes_max(parts_.cache.bytes_max());
  reply->set_prefill_tokens_per_second(scheduler_.prefill_tokens_per_second());
  reply->set_decode_tokens_per_second(scheduler_.decode_tokens_per_second());
  if (const model::GateCount gates = steps.all_gates(); gates.asked > 0)
    reply->set_gates_open(gates.mean());
}

Result<v1::StatsReply> SessionReader::SessionStats(const std::string& name) const {
  const auto session = parts_.sessions.Find(name);
  MNEME_TRY(session);
  const auto stored = parts_.log().GetSession((*session)->id);
  MNEME_TRY(stored);
  v1::StatsReply reply;
  reply.set_session(name);
  const ChunkCounts chunks = ChunksOf(*stored);
  *reply.mutable_bytes() = BytesOf(*stored, chunks, *session);
  reply.set_turns(stored->head.turn());
  reply.set_tokens(stored->head.position());
  reply.set_chunks((*session)->memory == nullptr ? chunks.logged
                                                 : (*session)->memory->chunk_count());
  const SessionCounters& counters = (*session)->counters;
  reply.set_tokens_computed(counters.tokens_computed);
  reply.set_tokens_generated(counters.tokens_generated);
  reply.set_tokens_replayed(counters.tokens_replayed);
  reply.set_tokens_restored(counters.tokens_restored);
  reply.set_page_store_reads(counters.page_reads);
  reply.set_page_store_read_bytes(counters.page_reads * parts_.layout.group_bytes());
  reply.set_pages_missed(counters.pages_missed);
  reply.set_reader(ReaderOf(*stored));
  reply.set_other_identity(stored->record.identity() != parts_.identity);
  reply.set_last_used_us(static_cast<int64_t>(stored->head.last_used_wall_us()));
  reply.set_state(std::string(NameOf((*session)->phase)));
  reply.set_host_bytes_max(parts_.cache.bytes_max());
  return reply;
}

void SessionReader::Stats(std::shared_ptr<Call> call) {
  const std::string& name = call->request().stats().session();
  if (name.empty()) return asking_.push_back(std::move(call));
  auto reply = SessionStats(name);
  if (!reply) return call->Fail(reply.error());
  v1::Event event;
  *event.mutable_stats() = std::move(*reply);
  call->Finish(std::move(event));
}

void SessionReader::List(std::shared_ptr<Call> call) { asking_.push_back(std::move(call)); }

void SessionReader::Transcript(Call& call) {
  const v1::TranscriptRequest& request = call.request().transcript();
  const auto session = parts_.sessions.Find(request.session());
  if (!session) return call.Fail(session.error());
  const v1::HeadRecord& head = (*session)->head;
  const uint64_t most = request.turns_max() == 0 ? kTurnsShown : request.turns_max();
  const uint64_t newest = head.turn() > most ? head.turn() - most + 1 : 1;
  const uint64_t first = request.first_turn() == 0 ? newest : request.first_turn();
  v1::Event event;
  v1::Transcript& transcript = *event.mutable_transcript();
  transcript.set_session(request.session());
  *transcript.mutable_head() = HeadOf(head);
  if (first <= head.turn()) {
    const uint64_t last = std::min(head.turn(), first + most - 1);
    size_t bytes = 0;
    const Status read =
        parts_.log().ReadTurns((*session)->id, {first}, {last}, [&](const auto& turn) {
          v1::TranscriptTurn shown = TranscriptOf(turn.record, parts_.tokenizer());
          if (shown.ByteSizeLong() > kAnswerBytesMax) CutToFit(&shown);
          bytes += shown.ByteSizeLong();
          if (bytes > kAnswerBytesMax && transcript.turns_size() > 0) return false;
          *transcript.add_turns() = std::move(shown);
          return true;
        });
    if (!read) return call.Fail(read.error());
    transcript.set_more(transcript.turns_size() == 0 ||
                        transcript.turns(transcript.turns_size() - 1).turn() < head.turn());
  }
  call.Finish(std::move(event));
}

void SessionReader::Explain(Call& call) {
  auto explanation = ExplanationOf(call.request().explain());
  if (!explanation) return call.Fail(explanation.error());
  v1::Event event;
  *event.mutable_explanation() = std::move(*explanation);
  call.Finish(std::move(event));
}

Result<v1::Explanation> SessionReader::ExplanationOf(const v1::ExplainRequest& request) {
  const auto found = parts_.sessions.Find(request.session());
  MNEME_TRY(found);
  Session& session = **found;
  v1::Explanation explanation;
  v1::TurnRecord record;
  uint64_t number = request.turn() == 0 ? session.head.turn() : request.turn();
  for (; number > 0; --number) {
    const auto turn = parts_.log().ReadTurn(session.id, {number});
    MNEME_TRY(turn);
    record = turn->record;
    if (record.kind() == v1::TURN_KIND_GENERATE || request.turn() != 0) break;
  }
  explanation.set_turn(number);
  if (parts_.layout.reader == memory::Reader::kNative) {
    explanation.set_none_because(
        "the native reader folds all history into one state, so no part of it can be told apart");
    return explanation;
  }
  if (number == 0 || record.kind() != v1::TURN_KIND_GENERATE) {
    explanation.set_none_because("nothing was generated in this turn");
    return explanation;
  }
  v1::ExplainRecord explained;
  if (record.explain().empty() || !explained.ParseFromString(record.explain())) {
    explanation.set_none_because("the turn was generated without `explain`, so nothing was kept");
    return explanation;
  }
  const TurnTokens tokens = TokensOf(record);
  const auto kept = static_cast<uint32_t>(explained.tokens_size());
  const uint32_t most = request.tokens_max() == 0 ? kTokensExplained : request.tokens_max();
  const uint64_t chunk_tokens = std::max(explained.chunk_tokens(), 1u);
  const uint64_t first_generated =
      tokens.end_position() - std::min<uint64_t>(kept, tokens.ids.size());
  std::unordered_map<uint32_t, std::string> texts;
  for (uint32_t index = request.first_token(); index < kept; ++index) {
    if (index - request.first_token() >= most) {
      explanation.set_more(true);
      break;
    }
    v1::TokenExplanation& token = *explanation.add_tokens();
    const uint64_t position = first_generated + index;
    token.set_position(position);
    const int32_t id = tokens.ids[static_cast<size_t>(position - tokens.first_position)];
    token.set_text(parts_.tokenizer().Decode({&id, 1}));
    for (const v1::ShareRecord& share : explained.tokens(static_cast<int>(index)).shares()) {
      v1::Contribution& part = *token.add_contributions();
      const uint64_t first = share.chunk() * chunk_tokens;
      part.set_first_position(first);
      part.set_tokens(chunk_tokens);
      part.set_share(share.share());
      part.set_tier(share.from_disk() ? "disk" : "host");
      auto text = texts.find(share.chunk());
      if (text == texts.end()) {
        const auto span = SpanText(session, first, chunk_tokens, parts_.tokenizer());
        MNEME_TRY(span);
        text = texts.emplace(share.chunk(), *span).first;
      }
      part.set_text(text->second);
    }
  }
  return explanation;
}

}  // namespace mneme::engine
