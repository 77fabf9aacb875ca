// SPDX-License-Identifier: Apache-2.0
// Source of the opcodes: Lib/pickletools.py of CPython; of what an array is reduced to: array_reduce in NumPy's
// methods.c.
#include "io/pickled_texts.h"

#include <algorithm>
#include <map>
#include <utility>

namespace troupe {
namespace {

/// Runs a pickle with values that are a text, the one list, or anything else.
class Unpickling {
 public:
  explicit Unpickling(std::string_view bytes) : bytes_(bytes) {}

  /// False where the pickle has something that an array of texts has not, or ends early.
  bool run() {
    for (;;) {
      if (at_ == bytes_.size()) return false;
      const auto code = static_cast<unsigned char>(bytes_[at_++]);
      if (code == '.') return has_list_;
      if (!step(code)) return false;
    }
  }
  std::vector<std::string_view> texts() && { return std::move(list_); }

 private:
  enum class Kind : char { kMark, kText, kList, kOther };
  struct Value {
    Kind kind = Kind::kOther;
    std::string_view text = {};
  };

  bool step(unsigned char code) {
    switch (code) {
      case 0x80: return skip(1);             // PROTO
      case 0x95: return skip(8);             // FRAME
      case '(': return push({Kind::kMark});  // MARK
      case 'N':
      case 0x88:
      case 0x89: return push({});                    // NONE, NEWTRUE, NEWFALSE
      case 'K': return skip(1) && push({});          // BININT1
      case 'M': return skip(2) && push({});          // BININT2
      case 'J': return skip(4) && push({});          // BININT
      case 0x8a: return long_integer() && push({});  // LONG1
      case 'C':
      case 0x8c: return text(1);  // SHORT_BINBYTES, SHORT_BINUNICODE
      case 'B':
      case 'X': return text(4);  // BINBYTES, BINUNICODE
      case 0x8e:
      case 0x8d: return text(8);                      // BINBYTES8, BINUNICODE8
      case 'c': return line() && line() && push({});  // GLOBAL
      case 0x93: return pop(2) && push({});           // STACK_GLOBAL
      case ')': return push({});                      // EMPTY_TUPLE
      case 0x85: return pop(1) && push({});           // TUPLE1
      case 0x86:
      case 'R': return pop(2) && push({});         // TUPLE2, REDUCE
      case 0x87: return pop(3) && push({});        // TUPLE3
      case 't': return pop_to_mark() && push({});  // TUPLE
      case 'b': return pop(1) && !stack_.empty();  // BUILD
      case ']':                                    // EMPTY_LIST
        return !std::exchange(has_list_, true) && push({Kind::kList});
      case 'a': return append(1);  // APPEND
      case 'e': {                  // APPENDS
        const auto mark = std::find_if(stack_.rbegin(), stack_.rend(), is_mark);
        if (mark == stack_.rend()) return false;
        const auto count = static_cast<size_t>(mark - stack_.rbegin());
        stack_.erase(mark.base() - 1);
        return append(count);
      }
      case 0x94: return !stack_.empty() && (memo_[memo_.size()] = stack_.back(), true);  // MEMOIZE
      case 'q': return put(1);                                                           // BINPUT
      case 'r': return put(4);                                                           // LONG_BINPUT
      case 'h': return get(1);                                                           // BINGET
      case 'j': return get(4);                                                           // LONG_BINGET
      default: return false;
    }
  }

  static bool is_mark(const Value& v) { return v.kind == Kind::kMark; }
  bool push(const Value& v) { return stack_.push_back(v), true; }
  bool skip(uint64_t n) {
    if (n > bytes_.size() - at_) return false;
    at_ += n;
    return true;
  }
  bool number(size_t width, uint64_t& out) {
    const size_t begin = at_;
    if (!skip(width)) return false;
    out = 0;
    for (size_t i = width; i-- > 0;) out = out << 8 | static_cast<unsigned char>(bytes_[begin + i]);
    return true;
  }
  bool long_integer() {
    uint64_t n = 0;
    return number(1, n) && skip(n);
  }
  bool text(size_t width) {
    uint64_t n = 0;
    if (!number(width, n)) return false;
    const size_t begin = at_;
    return skip(n) && push({Kind::kText, bytes_.substr(begin, n)});
  }
  bool line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == bytes_.npos) return false;
    at_ = end + 1;
    return true;
  }
  bool pop(size_t n) {
    if (n > stack_.size() || std::any_of(stack_.end() - static_cast<std::ptrdiff_t>(n), stack_.end(), is_mark))
      return false;
    stack_.resize(stack_.size() - n);
    return true;
  }
  bool pop_to_mark() {
    while (!stack_.empty() && !is_mark(stack_.back())) stack_.pop_back();
    if (stack_.empty()) return false;
    stack_.pop_back();
    return true;
  }
  bool append(size_t count) {
    if (count + 1 > stack_.size()) return false;
    const auto begin = stack_.end() - static_cast<std::ptrdiff_t>(count);
    if ((begin - 1)->kind != Kind::kList) return false;
    for (auto v = begin; v != stack_.end(); ++v) {
      if (v->kind != Kind::kText) return false;
      list_.push_back(v->text);
    }
    stack_.erase(begin, stack_.end());
    return true;
  }
  bool put(size_t width) {
    uint64_t n = 0;
    if (!number(width, n) || stack_.empty()) return false;
    memo_[n] = stack_.back();
    return true;
  }
  bool get(size_t width) {
    uint64_t n = 0;
    if (!number(width, n)) return false;
    const auto v = memo_.find(n);
    return v != memo_.end() && push(v->second);
  }

  const std::string_view bytes_;
  size_t at_ = 0;
  std::vector<Value> stack_;
  std::map<uint64_t, Value> memo_;
  std::vector<std::string_view> list_;
  bool has_list_ = false;
};

void append_little(uint64_t value, int bytes, std::string& out) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> 8 * i & 0xFF);
}

}  // namespace

bool pickled_texts(std::string_view pickle, std::vector<std::string_view>& texts) {
  Unpickling run(pickle);
  if (!run.run()) return false;
  texts = std::move(run).texts();
  return true;
}

std::string pickle_texts(std::span<const std::string> texts, const Shape& shape) {
  using namespace std::string_literals;
  // numpy._core, where this is since NumPy 2, is not in NumPy 1; this name both have.
  std::string out =
      "\x80\4cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85"
      "C\1b\x87R(K\1("s;
  for (const int64_t dim : shape.dims()) {
    out += "\x8a\x09";
    append_little(static_cast<uint64_t>(dim), 8, out);
    out += '\0';  // the sign
  }
  out += "tcnumpy\ndtype\nX\2\0\0\0O8\x89\x88\x87R(K\3X\1\0\0\0|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb\x89]"s;
  for (const std::string& text : texts) {
    const bool longer = text.size() > UINT32_MAX;
    out += longer ? '\x8e' : 'B';
    append_little(text.size(), longer ? 8 : 4, out);
    out.append(text) += 'a';
  }
  return out += "tb.";
}

}  // namespace troupe
