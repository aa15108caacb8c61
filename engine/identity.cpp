#include "engine/identity.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

namespace mneme::engine {
namespace {

// Raised when the same inputs begin to give other pages.
constexpr int kLayoutVersion = 1;

std::string Hex(const memory::Digest& digest) {
  std::string text;
  for (const std::byte byte : digest) text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return text;
}

struct Field {
  std::string name;
  std::string value;
  bool operator==(const Field&) const = default;
};

std::vector<Field> Fields(const std::string& identity) {
  std::istringstream stream(identity);
  std::vector<Field> fields;
  for (std::string text; stream >> text;) {
    const size_t name = text.find('=');
    fields.push_back({.name = text.substr(0, name),
                      .value = name == std::string::npos ? "" : text.substr(name + 1)});
  }
  return fields;
}

bool IsHash(std::string_view name) {
  return name == "weights" || name == "config" || name == "router" || name == "tokenizer";
}

// A reader without a router has zeros there.
bool IsNone(const std::string& hash) { return hash.find_first_not_of('0') == std::string::npos; }

// Enough of a hash to tell two apart.
std::string Shown(const Field& field) {
  if (!IsHash(field.name)) return field.value;
  return IsNone(field.value) ? "none" : field.value.substr(0, 8);
}

// What differs because another reader was chosen; two routers are two models.
bool GoesWithReader(const Field& ours, const Field& theirs) {
  if (ours.name == "router") return IsNone(ours.value) || IsNone(theirs.value);
  return ours.name == "theta" || ours.name == "window" || ours.name == "pages_max";
}

}  // namespace

std::string IdentityText(const IdentityParts& parts, const memory::MemoryLayout& layout) {
  return fmt::format(
      "weights={} config={} router={} tokenizer={} reader={} theta={} window={} pages_max={} "
      "chunk={} "
      "page={} layout={} policy=exact",
      Hex(parts.weights_hash), Hex(parts.config_hash), Hex(parts.router_hash),
      Hex(parts.tokenizer_hash), memory::NameOf(layout.reader), parts.theta,
      layout.linear.window_tokens, layout.linear.pages_max, layout.chunk_tokens(),
      layout.page_dtype == kernels::Dtype::kF32 ? "f32" : "f16", kLayoutVersion);
}

std::string IdentityField(const std::string& identity, std::string_view name) {
  for (const Field& field : Fields(identity)) {
    if (field.name == name) return field.value;
  }
  return "";
}

std::string IdentityDifference(const std::string& here, const std::string& session) {
  const std::vector<Field> ours = Fields(here);
  const std::vector<Field> theirs = Fields(session);
  const auto same_name = [](const Field& one, const Field& other) {
    return one.name == other.name;
  };
  if (!std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end(), same_name)) {
    return fmt::format(
        "it was made by another version of this server; serve it with that one ({} here, {} in the "
        "session)",
        here, session);
  }
  std::string reader;
  bool reader_only = true;
  std::string files;
  std::string settings;
  for (size_t at = 0; at < ours.size(); ++at) {
    if (ours[at] == theirs[at]) continue;
    if (ours[at].name == "reader") {
      reader = theirs[at].value;
    } else {
      reader_only = reader_only && GoesWithReader(ours[at], theirs[at]);
    }
    std::string& list = IsHash(ours[at].name) ? files : settings;
    list += fmt::format("{}{} ({} in the session, {} here)", list.empty() ? "" : ", ",
                        ours[at].name, Shown(theirs[at]), Shown(ours[at]));
  }
  if (!reader.empty() && reader_only)
    return fmt::format("it was made with another reader; serve it with --reader {}", reader);
  if (files.empty()) {
    return fmt::format(
        "it was made with other settings: {}; serve it with those, or open another session",
        settings);
  }
  return fmt::format(
      "it was made with another model: other {}{}{}; serve it with the model folder that it was "
      "made with, or open another session",
      files, settings.empty() ? "" : ", and other ", settings);
}

}  // namespace mneme::engine
