// strings.mjs - test strings from a fixed seed: many scripts, code, emoji with joiners, blanks, digits, marks.
// Characters that Unicode gained after version 14 are left out: the two programs' tables may differ in age.

export function random(seed) {
  let s = seed >>> 0;
  return (n) => { // mulberry32
    s = (s + 0x6d2b79f5) >>> 0;
    let t = Math.imul(s ^ (s >>> 15), s | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) % n;
  };
}

const words = `the of don't I'LL we'Ve it's 'S 'tis Straße naïve café Ünïcode ﬁnd ǅ Ⅻ ½ x² ª º µ
  Привет мир ёлка Ελληνικά ΑΒΓ άέή हिन्दी नमस्ते বাংলা தமிழ் ไทยภาษา ລາວ ქართული հայերեն አማርኛ
  漢字 かな カタカナ ﾊﾝｶｸ 한국어 각 힣 中文字符 繁體 㐀㐁 𠀀𠀁 עברית שָׁלוֹם العربية السَّلَامُ فارسی ۱۲۳ ١٢٣ १२३
  Việt Nam tiếng dấu Å Å Ω Ω ṩ ṩ q̣̇ q̣̇ é é ﷺ ½⅓ ①② ㎏ ﬀ ẞ ſ İ ı`.split(/\s+/);
const code = ["int main(void) { return 0; }", "for (i=0;i<10;++i)\n\tx[i] += 1;", "def f(x):\n    return x**2  # hi\n", "<div class=\"a\">&nbsp;</div>",
  "SELECT * FROM t WHERE a>=3;", "{\"k\": [1, 2.50, -3e-7]}", "https://example.org/?q=a%20b&c=d#e", "std::vector<std::map<int,char*>>", "\\frac{1}{2}", "0xDEADBEEF",
  "a_b_c camelCase PascalCase", "===> !!! ... ---", "```c\n#include <stdio.h>\n```", "$x->{y}[0]", "1,234,567.89", "10^6 3.14159265358979"];
const emoji = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇯🇵", "❤️", "🧑🏿‍🚀", "1️⃣", "☃", "👨‍⚕️", "‍", "️"];
const blanks = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", " \n ", "\u00a0", "\u3000", "\u2003", "\u2028", "\u0085", "\u180e", "\u200b", "\ufeff", "\v\f", "\n \n\n\t ", "        "];
const marks = ["\u0301", "\u0323", "\u0308", "\u0327", "\u0338", "\u20d7", "\u05b8", "\u0651", "\u064b", "\u093c", "\u0f71", "\u0f74", "\u3099", "\u0345", "\u1dc4", "\u0315"];
const jamo = ["\u1100", "\u1161", "\u11a8", "\u1112", "\u1175", "\u11c2", "\uac00", "\uac01"];
const odd = ["\0", "\u0001", "\u007f", "\u00ad", "\ufffd", "\uffff", "\ue000", "\u0340", "\u0344", "\u2126", "\u212b", "\u0958", "\ufb1d", "\uf900", "\u{1d15e}", "\u{2f800}", "\u09c7\u09be", "\u{11099}\u{110ba}"];
const younger = new Set([0x0cf3, 0x0ece, 0x1c89, 0x1c8a, 0x2427, 0x2428, 0x2429, 0x31e4, 0x31e5, 0x2ffc, 0x2ffd, 0x2ffe, 0x2fff, 0x31ef, 0xa7cb, 0xa7cc, 0xa7cd, 0xa7da, 0xa7db, 0xa7dc, 0x0897, 0x088f, 0x0c5c, 0x0cdc, 0x1acf, 0x20c1]);

function codePoint(r) {
  for (;;) {
    const c = [() => 0x20 + r(0x5f), () => 0xa0 + r(0x260), () => r(0x10000), () => 0x4e00 + r(0x5200), () => 0x1f300 + r(0x2d0),
      () => 0x20000 + r(0xa6d0), () => 0xac00 + r(11172)][r(7)]();
    const t = String.fromCodePoint(c);
    if ((c < 0xd800 || c > 0xdfff) && !younger.has(c) && !/\p{Cn}/u.test(t)) return t;
  }
}

function run(r) {
  const unit = [..."A0 .=-_\n\tz9", "漢", "é", "\u0301", "😀", "  ", "ab", "\r\n"][r(17)];
  return unit.repeat(1 + r(r(8) ? 12 : 200));
}

const pick = (r, a) => a[r(a.length)];
const digits = (r) => Array.from({ length: 1 + r(9) }, () => r(10)).join("");

const kinds = [
  [12, (r) => pick(r, words)], [3, (r) => pick(r, code)], [3, (r) => pick(r, emoji)], [10, (r) => pick(r, blanks)], [12, () => " "], [4, digits],
  [3, (r) => pick(r, marks)], [2, (r) => pick(r, jamo)], [1, (r) => pick(r, odd)], [3, codePoint], [2, run],
  [2, (r) => pick(r, [..."'\"`´’.,;:!?()[]{}<>|@#$%^&*~/\\-+=_"])], [3, (r) => "'" + pick(r, ["s", "T", "re", "VE", "m", "Ll", "d", "x"])],
];
const bag = kinds.flatMap(([weight, make]) => Array(weight).fill(make));

// `extra`: further pieces to mix in, say the spellings of special tokens.
export function strings(count, seed, extra = []) {
  const r = random(seed);
  return Array.from({ length: count }, () => {
    let s = "";
    for (let n = r(24); n >= 0; n--) s += extra.length && r(6) === 0 ? pick(r, extra) : pick(r, bag)(r);
    return s;
  });
}
