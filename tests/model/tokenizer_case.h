// The golden tokenizer, its lines, and a small cut of it that is cheap to damage.
#pragma once

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer.h"

namespace mneme::model {

inline std::string GoldenPath(std::string_view name) {
  return std::string(MNEME_SOURCE_DIR "/tests/golden/").append(name);
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  EXPECT_TRUE(stream) << path;
  std::ostringstream text;
  text << stream.rdbuf();
  return std::move(text).str();
}

inline const Tokenizer& GoldenTokenizer() {
  static const Tokenizer tokenizer = [] {
    auto loaded = Tokenizer::Load(GoldenPath("tokenizer/tokenizer.json"));
    if (!loaded) throw std::runtime_error(loaded.error().message());
    return *std::move(loaded);
  }();
  return tokenizer;
}

struct GoldenLine {
  std::string text;
  std::vector<int32_t> ids;
};

// line := u16 bytes, UTF-8 text, u16 count, count u16 ids; all little-endian.
inline std::vector<GoldenLine> ReadGoldenLines(std::string_view name) {
  const std::string file = ReadFile(GoldenPath(name));
  size_t at = 0;
  const auto next = [&] {
    const auto low = static_cast<unsigned char>(file.at(at++));
    return size_t{low} | size_t{static_cast<unsigned char>(file.at(at++))} << 8;
  };
  std::vector<GoldenLine> lines;
  while (at < file.size()) {
    GoldenLine& line = lines.emplace_back();
    const size_t bytes = next();
    line.text = file.substr(at, bytes);
    at += bytes;
    line.ids.resize(next());
    for (int32_t& id : line.ids) id = static_cast<int32_t>(next());
  }
  return lines;
}

// The golden tokenizer.json with its first `merges` merges, the tokens they make, and all added
// tokens right after them: whole and valid, but a few kilobytes.
inline boost::json::object SmallTokenizerFile(size_t merges) {
  boost::json::object file =
      boost::json::parse(ReadFile(GoldenPath("tokenizer/tokenizer.json"))).as_object();
  boost::json::object& model = file["model"].as_object();
  boost::json::object vocab;
  const auto tokens = static_cast<int64_t>(256 + merges);
  for (const auto& [text, id] : model["vocab"].as_object()) {
    if (id.as_int64() < tokens) vocab[text] = id;
  }
  model["vocab"] = vocab;
  model["merges"].as_array().resize(merges);
  int64_t next = tokens;
  for (boost::json::value& token : file["added_tokens"].as_array()) {
    token.as_object()["id"] = next++;
  }
  return file;
}

}  // namespace mneme::model
