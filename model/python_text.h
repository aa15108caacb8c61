// JSON values and white space as Python writes and strips them. Chat templates run in Python where
// models are trained, so prompts must look as Python would have made them.
#pragma once

#include <boost/json/fwd.hpp>
#include <string>
#include <string_view>

namespace mneme::model {

// json.dumps(value, ensure_ascii=False): `, ` and `: ` between things, shortest floats.
void AppendPythonJson(const boost::json::value& value, std::string& text);

// str(value) of a string, number, boolean or null; json.dumps of an array or object.
void AppendPythonText(const boost::json::value& value, std::string& text);

// text.strip(): without Unicode's white space at either end.
std::string_view PythonStrip(std::string_view text);

}  // namespace mneme::model
