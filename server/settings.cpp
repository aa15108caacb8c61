#include "server/settings.h"

#include <fmt/format.h>

#include <array>

#include "base/bytes.h"

namespace mneme::server {
namespace {

using std::string_view;

constexpr std::array<string_view, 3> kReaders = {"hla", "mhla", "native"};
constexpr std::array<string_view, 2> kPageDtypes = {"f16", "f32"};
constexpr std::array<string_view, 4> kLogLevels = {"debug", "info", "warning", "error"};

constexpr std::array kSettings = {
    Setting{"model_dir", "", "folder", "the model: config.json, tokenizer.json, *.safetensors"},
    Setting{"store_dir", "", "folder", "the log and the pages; made if it is not there"},
    Setting{.path = "reader",
            .standard = "",
            .unit = "text",
            .description = "how history is read; the model's own is hla with a router, else native",
            .choices = kReaders},
    Setting{"listen.address", "127.0.0.1", "text",
            "address to listen on; only this machine's own until keys and TLS exist"},
    Setting{"listen.port", "7411", "port", "port to listen on", 1, 65'535},
    Setting{"cpu.threads", "0", "threads", "threads of the CPU backend; 0: one per core", 0, 1024},
    Setting{"scheduler.step_ms", "50", "ms",
            "longest time that one slice of reading takes from others' answers"},
    Setting{"scheduler.batch_max", "8", "sessions", "sessions whose answers are written together",
            1, 256},
    Setting{"scheduler.running_max", "16", "sessions",
            "sessions at work at once, each with an open chunk"},
    Setting{"scheduler.idle_tokens_max", "1024", "tokens",
            "kept in open chunks of idle sessions, all together; beyond it the one unused for "
            "longest computes its last chunk again"},
    Setting{"memory.host_bytes_max", "2GiB", "bytes",
            "cap on history in memory, beside the model; the rest lies on disk (commands without "
            "a server: --host-mib)"},
    Setting{.path = "memory.page_dtype",
            .standard = "f16",
            .unit = "text",
            .description = "type of pages",
            .choices = kPageDtypes},
    Setting{"memory.readers", "8", "threads", "threads that read pages from disk", 1, 64},
    Setting{"memory.unsaved_tokens_max", "1024", "tokens",
            "computed and not yet on disk; reading waits beyond"},
    Setting{"limits.frame_bytes_max", "1MiB", "bytes", "longest request", kKiB, 16 * kMiB},
    Setting{"limits.connections_max", "10000", "connections", "connections at once", 1, 18'000},
    Setting{"limits.requests_per_connection_max", "64", "requests",
            "requests in flight on one connection"},
    Setting{"limits.sessions_max", "10000", "sessions",
            "sessions in the store; an empty one makes room for a new one"},
    Setting{"limits.tokens_per_session_max", "16000000", "tokens", "longest session"},
    Setting{"limits.generated_tokens_max", "4096", "tokens", "longest answer", 1, 65'536},
    Setting{"limits.queue_max", "1024", "requests", "requests that wait for the engine"},
    Setting{"limits.output_pause_bytes", "256KiB", "bytes",
            "unread output at which an answer pauses; at most limits.output_max_bytes", kKiB,
            4 * kMiB},
    Setting{"limits.output_max_bytes", "1MiB", "bytes",
            "unread output at which the connection is cut", 16 * kKiB, 4 * kMiB},
    Setting{"limits.output_stall_ms", "30000", "ms",
            "longest time that a client reads nothing of what waits for it"},
    Setting{"limits.drain_ms", "30000", "ms", "longest time to finish answers after SIGTERM"},
    Setting{.path = "log_level",
            .standard = "info",
            .unit = "text",
            .description = "what is logged: this and what is worse",
            .choices = kLogLevels},
};

}  // namespace

std::span<const Setting> Settings() { return kSettings; }

bool IsText(const Setting& setting) { return setting.unit == "text" || setting.unit == "folder"; }

std::string WhatItDoes(const Setting& setting) {
  const std::string allowed = AllowedValues(setting);
  return fmt::format("{}{}{}", setting.description, allowed.empty() ? "" : "; ", allowed);
}

std::string AllowedValues(const Setting& setting) {
  if (!setting.choices.empty()) {
    const std::string words = fmt::format("{}", fmt::join(setting.choices, ", "));
    return setting.standard.empty() ? words + ", or empty for the model's own" : words;
  }
  if (setting.max == 0) return "";
  return fmt::format("{} to {}", setting.min, setting.max);
}

}  // namespace mneme::server
