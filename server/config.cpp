#include "server/config.h"

#include <fcntl.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "base/bytes.h"
#include "base/file_error.h"
#include "server/listener.h"
#include "server/settings.h"

namespace mneme::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

constexpr size_t kFileBytesMax = 1024 * 1024;
constexpr std::string_view kPrefix = "MNEME_";
// Variables of ours that are not the server's.
constexpr std::string_view kOtherVariables[] = {"MNEME_SERVER"};

// A field of the configuration that holds a value, and the message it lies in.
struct Place {
  Message* message = nullptr;
  const FieldDescriptor* field = nullptr;
};

std::optional<Place> Find(Message& root, std::string_view path) {
  Message* message = &root;
  for (;;) {
    const size_t dot = path.find('.');
    const FieldDescriptor* field =
        message->GetDescriptor()->FindFieldByName(std::string(path.substr(0, dot)));
    if (field == nullptr || (field->message_type() != nullptr) != (dot != path.npos))
      return std::nullopt;
    if (dot == path.npos) return Place{message, field};
    message = message->GetReflection()->MutableMessage(message, field);
    path.remove_prefix(dot + 1);
  }
}

// A whole number; a field of bytes also takes KiB, MiB and GiB.
std::optional<uint64_t> ReadNumber(std::string_view text, bool bytes) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  if (unit.empty()) return value;
  uint64_t factor = 0;
  if (unit == "KiB") factor = kKiB;
  if (unit == "MiB") factor = kMiB;
  if (unit == "GiB") factor = kGiB;
  if (!bytes || factor == 0 || value > UINT64_MAX / factor) return std::nullopt;
  return value * factor;
}

// What `text` has to be, for the error.
std::string Wanted(const FieldDescriptor& field, const std::string& path) {
  const bool bytes = field.name().find("_bytes") != std::string::npos;
  std::string wanted = bytes ? "a number of bytes, such as 64MiB" : "a whole number";
  const auto setting = std::ranges::find(Settings(), path, &Setting::path);
  const std::string allowed = setting == Settings().end() ? "" : AllowedValues(*setting);
  if (!allowed.empty()) return wanted + ", " + allowed;
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32)
    wanted += fmt::format(", at most {}", UINT32_MAX);
  return wanted;
}

// `origin` says where the text comes from, for the error.
Status Set(const Place& place, const std::string& path, const std::string& text,
           const std::string& origin) {
  const FieldDescriptor& field = *place.field;
  const Reflection& reflection = *place.message->GetReflection();
  const bool bytes = field.name().find("_bytes") != std::string::npos;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      reflection.SetString(place.message, &field, text);
      return {};
    case FieldDescriptor::CPPTYPE_UINT32:
      if (const auto value = ReadNumber(text, bytes); value && *value <= UINT32_MAX) {
        reflection.SetUInt32(place.message, &field, static_cast<uint32_t>(*value));
        return {};
      }
      break;
    case FieldDescriptor::CPPTYPE_UINT64:
      if (const auto value = ReadNumber(text, bytes)) {
        reflection.SetUInt64(place.message, &field, *value);
        return {};
      }
      break;
    case FieldDescriptor::CPPTYPE_BOOL:
      if (text == "true" || text == "false") {
        reflection.SetBool(place.message, &field, text == "true");
        return {};
      }
      break;
    default:
      break;
  }
  return Fail(ErrorCode::kInvalidArgument, "{}: {} cannot be \"{}\"; it is {}", origin, path, text,
              Wanted(field, path));
}

std::string Text(const Place& place) {
  std::string text;
  TextFormat::PrintFieldValueToString(*place.message, place.field, -1, &text);
  if (place.field->cpp_type() == FieldDescriptor::CPPTYPE_STRING)
    return place.message->GetReflection()->GetString(*place.message, place.field);
  return text;
}

bool IsUnset(const Place& place) {
  const std::string text = Text(place);
  return text.empty() || text == "0" || text == "false";
}

// The first complaint of the parser, as FILE:LINE:COLUMN: what.
class FirstComplaint : public google::protobuf::io::ErrorCollector {
 public:
  FirstComplaint(std::string file, const std::string& read) : file_(std::move(file)), read_(read) {}
  void AddError(int line, int column, const std::string& message) override {
    if (!text_.empty()) return;
    text_ = fmt::format("{}:{}:{}: {}", file_, line + 1, column + 1, message);
    for (const char* unit : {"KiB", "MiB", "GiB"}) {
      if ((Line(line) + message).find(unit) == std::string::npos) continue;
      text_ += "; in the file bytes are a plain number, such as 67108864 for 64MiB";
      return;
    }
  }
  const std::string& text() const { return text_; }

 private:
  std::string Line(int number) const {
    std::istringstream lines(read_);
    std::string line;
    for (int i = 0; i <= number; ++i) std::getline(lines, line);
    return line;
  }

  const std::string file_;
  const std::string& read_;
  std::string text_;
};

// The line of the file that sets `path`, counted from 1; 0 where none does.
int LineOf(std::string_view path, const TextFormat::ParseInfoTree& lines) {
  const TextFormat::ParseInfoTree* tree = &lines;
  const Descriptor* type = v1::ServerConfig::descriptor();
  for (;;) {
    const size_t dot = path.find('.');
    const FieldDescriptor* field = type->FindFieldByName(std::string(path.substr(0, dot)));
    if (dot == path.npos) return tree->GetLocation(field, -1).line + 1;
    tree = tree->GetTreeForNested(field, -1);
    if (tree == nullptr) return 0;
    type = field->message_type();
    path.remove_prefix(dot + 1);
  }
}

Status ReadFile(const std::string& file, v1::ServerConfig& config,
                std::map<std::string, std::string>& origins) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream)
    return Fail(FileErrorCode(errno), "config file {}", FileErrorText(file, "opened", errno));
  std::string text(kFileBytesMax + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad() || stream.gcount() > static_cast<std::streamsize>(kFileBytesMax))
    return Fail(ErrorCode::kInvalidArgument, "config file {} cannot be read, or has over {} bytes",
                file, kFileBytesMax);
  text.resize(static_cast<size_t>(stream.gcount()));
  FirstComplaint complaint(file, text);
  TextFormat::ParseInfoTree lines;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&complaint);
  parser.WriteLocationsTo(&lines);
  if (!parser.ParseFromString(text, &config))
    return Fail(ErrorCode::kInvalidArgument, "{}", complaint.text());
  for (const Setting& setting : Settings()) {
    if (const int line = LineOf(setting.path, lines); line > 0)
      origins[std::string(setting.path)] = fmt::format("file {}:{}", file, line);
  }
  return {};
}

// The variable that was meant, for a remedy: one that ends or begins as `wanted` does where the
// section or the end of the name is missing, else the one with the fewest letters changed.
std::string Nearest(std::string_view wanted, const std::vector<std::string>& names) {
  const std::string_view word = wanted.substr(kPrefix.size());
  for (const std::string& name : names) {
    if (!word.empty() &&
        (name.ends_with(fmt::format("_{}", word)) || name.starts_with(fmt::format("{}_", wanted))))
      return name;
  }
  const auto distance = [](std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
      size_t diagonal = std::exchange(row[0], i);
      for (size_t j = 1; j <= b.size(); ++j) {
        const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
        diagonal = row[j];
        row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
      }
    }
    return row[b.size()];
  };
  return *std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) {
    return distance(wanted, a) < distance(wanted, b);
  });
}

Status ReadEnvironment(const std::vector<std::string>& environment, v1::ServerConfig& config,
                       std::map<std::string, std::string>& origins) {
  std::map<std::string, std::string> paths;
  std::vector<std::string> names;
  for (const Setting& setting : Settings()) {
    names.push_back(EnvironmentName(setting.path));
    paths[names.back()] = setting.path;
  }
  for (const std::string& entry : environment) {
    const std::string name = entry.substr(0, entry.find('='));
    if (!name.starts_with(kPrefix) || std::ranges::count(kOtherVariables, name) > 0) continue;
    if (!paths.contains(name)) {
      return Fail(ErrorCode::kInvalidArgument,
                  "environment {}: there is no such setting; did you mean {}?", name,
                  Nearest(name, names));
    }
    const std::string value = entry.substr(std::min(entry.size(), name.size() + 1));
    MNEME_TRY(Set(*Find(config, paths[name]), paths[name], value, "environment " + name));
    origins[paths[name]] = "environment " + name;
  }
  return {};
}

Status ReadFlags(const std::vector<std::pair<std::string, std::string>>& flags,
                 v1::ServerConfig& config, std::map<std::string, std::string>& origins) {
  for (const auto& [path, value] : flags) {
    const std::optional<Place> place = Find(config, path);
    if (!place) return Fail(ErrorCode::kInvalidArgument, "flag --{}: no such setting", path);
    MNEME_TRY(Set(*place, path, value, "flag --" + path));
    origins[path] = "flag --" + path;
  }
  return {};
}

Status CheckValue(const Setting& setting, const ConfigValue& value, uint64_t max) {
  if (!setting.choices.empty()) {
    if (value.value.empty() || std::ranges::count(setting.choices, value.value) > 0) return {};
    return Fail(ErrorCode::kInvalidArgument, "{}: {} is \"{}\"; it is one of {}", value.origin,
                setting.path, value.value, AllowedValues(setting));
  }
  const uint64_t number = max == 0 ? 0 : ReadNumber(value.value, false).value_or(0);
  if (max == 0 || (number >= setting.min && number <= max)) return {};
  return Fail(ErrorCode::kInvalidArgument, "{}: {} is {}; it lies in {} to {}", value.origin,
              setting.path, number, setting.min, max);
}

Status CheckAddress(const Configuration& loaded) {
  const auto address = LoopbackAddress(loaded.config.listen().address());
  if (address) return {};
  for (const ConfigValue& value : loaded.values) {
    if (value.path == "listen.address") return Fail(Error(address.error()).Within(value.origin));
  }
  return Fail(address.error());
}

Status Check(const Configuration& loaded) {
  MNEME_TRY(CheckAddress(loaded));
  for (size_t i = 0; i < loaded.values.size(); ++i) {
    const Setting& setting = Settings()[i];
    uint64_t max = setting.max;
    if (setting.path == "limits.output_pause_bytes")
      max = loaded.config.limits().output_max_bytes();
    MNEME_TRY(CheckValue(setting, loaded.values[i], max));
  }
  return {};
}

}  // namespace

std::string EnvironmentName(std::string_view path) {
  std::string name(kPrefix);
  for (const char c : path)
    name.push_back(c == '.' ? '_' : (c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c));
  return name;
}

Result<Configuration> LoadConfiguration(const ConfigSources& sources) {
  Configuration loaded;
  std::map<std::string, std::string> origins;
  if (!sources.file.empty()) MNEME_TRY(ReadFile(sources.file, loaded.config, origins));
  MNEME_TRY(ReadEnvironment(sources.environment, loaded.config, origins));
  MNEME_TRY(ReadFlags(sources.flags, loaded.config, origins));
  for (const Setting& setting : Settings()) {
    const std::string path(setting.path);
    const Place place = *Find(loaded.config, path);
    if (IsUnset(place)) {
      // Said to be 0 or empty, it has its default, and so that is where the value comes from.
      if (!setting.standard.empty())
        MNEME_TRY(Set(place, path, std::string(setting.standard), "default"));
      origins[path] = "default";
    }
    loaded.values.push_back({path, Text(place), origins[path]});
  }
  MNEME_TRY(Check(loaded));
  return loaded;
}

ServerOptions ServerOptionsFrom(const v1::ServerConfig& config) {
  const v1::LimitConfig& limits = config.limits();
  ServerOptions options;
  options.address = config.listen().address();
  options.port = static_cast<uint16_t>(config.listen().port());
  options.connections_max = limits.connections_max();
  options.drain_ms = limits.drain_ms();
  options.connection.frame.frame_bytes_max = limits.frame_bytes_max();
  options.connection.requests_max = limits.requests_per_connection_max();
  options.connection.generated_tokens_max = limits.generated_tokens_max();
  options.connection.output = {.pause_bytes = limits.output_pause_bytes(),
                               .bytes_max = limits.output_max_bytes(),
                               .stall_ms = limits.output_stall_ms()};
  return options;
}

}  // namespace mneme::server
