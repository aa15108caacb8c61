// Settings is the one table of what `mneme serve` can be told: the flags, --help, the defaults, the
// checks, --check-config and docs/operating.md are all made of it or compared with it.
//
// A row has the path of its field in config.proto, and the rows stand in the order of that file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mneme::server {

struct Setting {
  std::string_view path;         // scheduler.step_ms
  std::string_view standard;     // the default, as it would be typed; "0" and "" stand for unset
  std::string_view unit;         // ms, bytes, tokens, ...; `text` and `folder` are no numbers
  std::string_view description;  // what it does, for --help and docs/operating.md
  uint64_t min = 0;              // of a number with a range, in its unit; checked where max > 0
  uint64_t max = 0;
  std::span<const std::string_view> choices = {};  // of a text that is one of a few words
};

std::span<const Setting> Settings();

// Not a number: --check-config shows it in quotes.
bool IsText(const Setting& setting);

// The description and what the value may be.
std::string WhatItDoes(const Setting& setting);

// What it may be: "1 to 256", "f16, f32", or "" where every number or text will do.
std::string AllowedValues(const Setting& setting);

}  // namespace mneme::server
