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

std::vector<std::string> Fields(const std::string& identity) {
  std::istringstream stream(identity);
  std::vector<std::string> fields;
  for (std::string field; stream >> field;) fields.push_back(field);
  return fields;
}

}  // namespace

std::string IdentityText(const IdentityParts& parts, const memory::MemoryLayout& layout) {
  return fmt::format(
      "weights={} router={} tokenizer={} reader={} theta={} window={} pages_max={} chunk={} "
      "page={} layout={} policy=exact",
      Hex(parts.weights_hash), Hex(parts.router_hash), Hex(parts.tokenizer_hash),
      memory::NameOf(layout.reader), parts.theta, layout.linear.window_tokens,
      layout.linear.pages_max, layout.chunk_tokens(),
      layout.page_dtype == kernels::Dtype::kF32 ? "f32" : "f16", kLayoutVersion);
}

std::string IdentityDifference(const std::string& here, const std::string& session) {
  const std::vector<std::string> ours = Fields(here);
  const std::vector<std::string> theirs = Fields(session);
  if (ours.size() != theirs.size()) return fmt::format("{} here, {} in the session", here, session);
  std::string difference;
  for (size_t field = 0; field < ours.size(); ++field) {
    if (ours[field] == theirs[field]) continue;
    if (!difference.empty()) difference += "; ";
    difference += fmt::format("{} here, {} in the session", ours[field], theirs[field]);
  }
  return difference;
}

std::string ReaderThatDiffers(const std::string& here, const std::string& session) {
  const std::vector<std::string> ours = Fields(here);
  const std::vector<std::string> theirs = Fields(session);
  if (ours.size() != theirs.size()) return "";
  std::string reader;
  for (size_t field = 0; field < ours.size(); ++field) {
    if (ours[field] == theirs[field]) continue;
    const std::string name = theirs[field].substr(0, theirs[field].find('='));
    const std::string value = theirs[field].substr(std::min(name.size() + 1, theirs[field].size()));
    if (name == "reader") {
      reader = value;
    } else if (name == "router") {
      // A reader without a router has zeros there; two routers are two models.
      const std::string none = "router=" + std::string(value.size(), '0');
      if (ours[field] != none && theirs[field] != none) return "";
    } else if (name != "theta" && name != "window" && name != "pages_max") {
      return "";
    }
  }
  return reader;
}

}  // namespace mneme::engine
