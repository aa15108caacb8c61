// Boost.JSON's own source, compiled once for the whole program: Debian's headers come without a
// library for it.
#include <boost/json/src.hpp>
