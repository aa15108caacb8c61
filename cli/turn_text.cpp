#include "cli/turn_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "cli/terminal.h"

namespace mneme::cli {
namespace {

constexpr std::string_view kStart = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";
constexpr std::string_view kNoThoughts = "<think>\n\n</think>";

// Adds what `whole` says, the text of part `index`, to `spoken`; `role` is whose turn it is before
// and after.
void Split(const std::string& whole, int index, std::string& role, std::vector<Spoken>& spoken) {
  const auto add = [&](std::string_view part) {
    if (part.starts_with(kNoThoughts)) part.remove_prefix(kNoThoughts.size());
    const std::string_view said = Trimmed(part);
    if (said.empty()) return;
    spoken.push_back({.role = role,
                      .text = std::string(said),
                      .part = index,
                      .offset = static_cast<size_t>(said.data() - whole.data())});
  };
  for (std::string_view text = whole;;) {
    const size_t start = text.find(kStart);
    const std::string_view before = text.substr(0, start);
    add(before.substr(0, before.find(kEnd)));
    if (start == text.npos) return;
    text.remove_prefix(start + kStart.size());
    const size_t newline = text.find('\n');
    role = std::string(text.substr(0, newline));
    text.remove_prefix(newline == text.npos ? text.size() : newline + 1);
  }
}

void AddLine(std::vector<std::string>& lines, std::string_view name, const std::string& text) {
  lines.push_back(fmt::format("{:<22}{}", name, text));
}

// One that is 0 says nothing.
void AddCounter(std::vector<std::string>& lines, std::string_view name, uint64_t value) {
  if (value > 0) AddLine(lines, name, Count(value));
}

}  // namespace

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \n\r\t";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == text.npos) return text.substr(0, 0);
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

std::vector<Spoken> SpokenIn(const v1::TranscriptTurn& turn) {
  std::vector<Spoken> spoken;
  std::string role = "user";
  for (int index = 0; index < turn.parts_size(); ++index) {
    if (turn.parts(index).generated()) role = "assistant";
    Split(turn.parts(index).text(), index, role, spoken);
  }
  return spoken;
}

std::vector<std::string> TurnLines(const v1::TranscriptTurn& turn) {
  std::vector<std::string> lines;
  for (const Spoken& one : SpokenIn(turn))
    lines.push_back(Printable(one.role) + ": " + Printable(one.text));
  return lines;
}

std::string MemoryText(const v1::MemoryReport& memory) {
  std::string text;
  const auto add = [&text](const char* what, uint64_t tokens) {
    if (tokens > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", what, Count(tokens));
  };
  // What a live session has in memory was not brought back, and is no news at every turn.
  if (memory.restore_ms() > 0) {
    add("restored", memory.restored_tokens());
    if (!text.empty() && !memory.tier().empty() && memory.tier() != "none")
      text += fmt::format(" from {} in {:.0f} ms", Printable(memory.tier()), memory.restore_ms());
  }
  add("replayed", memory.replayed_tokens());
  add("fresh", memory.fresh_tokens());
  add("pending", memory.pending_tokens());
  if (memory.pages_from_disk() > 0)
    text += fmt::format("{}{} from disk", text.empty() ? "" : ", ",
                        CountOf(memory.pages_from_disk(), "page"));
  if (text.empty()) text = "nothing to compute";
  if (!memory.miss_reason().empty()) {
    text +=
        "; a part of the kept memory was missing or damaged and is computed again from the log "
        "(the server's own log says which)";
  }
  return text;
}

std::string TierText(const v1::TierBytes& bytes) {
  std::string text;
  const auto add = [&text](const char* tier, uint64_t value) {
    if (value == 0) return;
    text += (text.empty() ? "" : ", ") + std::string(tier) + " " + Bytes(value);
  };
  add("device", bytes.device_bytes());
  add("host", bytes.host_bytes());
  add("disk", bytes.disk_bytes());
  add("index", bytes.index_bytes());
  add("open", bytes.open_bytes());
  return text.empty() ? "no bytes yet" : text;
}

std::string ReaderNote(const std::string& reader) {
  if (reader != "native") return "";
  return "this model has no router: its history is folded into one state, not looked up";
}

std::vector<std::string> StatsLines(const v1::StatsReply& stats) {
  std::vector<std::string> lines;
  const bool whole = stats.session().empty();
  AddLine(lines, whole ? "server" : "session", Printable(stats.session()));
  if (!whole) {
    AddLine(lines, "reader", Printable(stats.reader()));
    AddLine(lines, "last used", Moment(stats.last_used_us()));
    AddLine(lines, "state", Printable(stats.state()));
  }
  AddCounter(lines, "sessions stored", stats.sessions());
  AddCounter(lines, "sessions in memory", stats.sessions_running());
  AddCounter(lines, "sessions refused", stats.sessions_refused());
  AddCounter(lines, "turns", stats.turns());
  AddCounter(lines, "tokens", stats.tokens());
  AddCounter(lines, "chunks", stats.chunks());
  AddLine(lines, "memory",
          stats.other_identity() ? "not told: made with another model or reader than the server's"
                                 : TierText(stats.bytes()));
  const size_t kept = lines.size();
  AddCounter(lines, "  tokens computed", stats.tokens_computed());
  AddCounter(lines, "  tokens generated", stats.tokens_generated());
  AddCounter(lines, "  tokens replayed", stats.tokens_replayed());
  AddCounter(lines, "  tokens restored", stats.tokens_restored());
  AddCounter(lines, "  page reads", stats.page_store_reads());
  AddCounter(lines, "  page bytes read", stats.page_store_read_bytes());
  AddCounter(lines, "  page writes", stats.page_store_writes());
  AddCounter(lines, "  pages left host", stats.pages_evicted_from_host());
  AddCounter(lines, "  pages made again", stats.pages_missed());
  AddCounter(lines, "  page store mended", stats.page_store_mends());
  AddCounter(lines, "  log lines lost", stats.log_lines_lost());
  if (stats.prefill_tokens_per_second() > 0 || stats.decode_tokens_per_second() > 0) {
    AddLine(lines, "  tokens a second",
            fmt::format("prefill {:.0f}, decode {:.1f}", stats.prefill_tokens_per_second(),
                        stats.decode_tokens_per_second()));
  }
  if (stats.gates_open() > 0)
    AddLine(lines, "  chunks read a token", fmt::format("{:.2f}", stats.gates_open()));
  const auto counted = lines.begin() + static_cast<std::ptrdiff_t>(kept);
  lines.insert(counted,
               whole ? "since the server started:" : "of this session, since the server started:");
  if (lines.size() == kept + 1) lines.back() += " nothing yet";
  return lines;
}

std::vector<std::string> ExplanationLines(const v1::Explanation& explanation) {
  if (!explanation.none_because().empty())
    return {"nothing to explain: " + Printable(explanation.none_because())};
  std::vector<std::string> lines = {
      fmt::format("turn {}, token by token: how much of what it read came from which tokens, and "
                  "where those lay",
                  explanation.turn()),
      "(shares are summed over heads and layers, so they may exceed 1)"};
  for (const v1::TokenExplanation& token : explanation.tokens()) {
    lines.push_back(fmt::format("at {} \"{}\"", Count(token.position()), Printable(token.text())));
    if (token.contributions().empty()) lines.push_back("  nothing before the open chunk");
    for (const v1::Contribution& part : token.contributions()) {
      lines.push_back(
          fmt::format("  {:5.2f}  tokens {} to {}, {}", part.share(), Count(part.first_position()),
                      Count(part.first_position() + part.tokens() - 1), Printable(part.tier())));
    }
  }
  if (explanation.more()) lines.push_back("(and more tokens)");
  return lines;
}

}  // namespace mneme::cli
