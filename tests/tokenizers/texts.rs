//! Texts that find out what a tokenizer does: each alone, and put together at random.

/// Pieces that some tokenizer treats specially.
const PIECES: &[&str] = &[
    "Hello, world!",
    " leading and trailing ",
    "two  spaces   three    many          ten",
    "\ttabs\t\tand\r\nline\nends\n\n\n",
    "caf\u{e9} and cafe\u{301}, A\u{30a}ngstro\u{308}m, \u{1100}\u{1161}\u{11a8}, \u{1e9b}\u{323}",
    "\u{301}mark first",
    "\u{fb01}ligature \u{2460} \u{ff21}\u{ff42} \u{2126} x\u{b2} \u{bd}",
    "\u{130}stanbul \u{3a3}\u{399}\u{3a3} STRASSE \u{1e9e}",
    "emoji \u{1f600}\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467} \u{1f1e9}\u{1f1ea} \u{2764}\u{fe0f}",
    "\u{4eca}\u{5929}\u{5929}\u{6c14}\u{5f88}\u{597d}\u{3002}\u{6771}\u{4eac}\u{3067}\u{3059}\u{3002}\u{f900}",
    "\u{d55c}\u{ad6d}\u{c5b4} \u{627}\u{644}\u{639}\u{631}\u{628}\u{64a}\u{629} \u{e20}\u{e32}\u{e29}\u{e32}\u{e44}\u{e17}\u{e22} \u{939}\u{93f}\u{928}\u{94d}\u{926}\u{940}",
    "\u{2581}mark\u{2581}\u{2581}of \u{2581} spaces\u{2581}",
    "nb\u{a0}space\u{3000}wide\u{2003}em\u{200b}zero\u{feff}bom\u{ad}soft",
    "\0nul \u{1}\u{7f}\u{9f} controls \u{fffd} \u{e000} \u{10ffff}",
    "<|im_start|>user\n<|im_end|>",
    "<s>[INST] <<SYS>> </s>",
    "<bos><start_of_turn>user <end_of_turn>",
    "<|begin_of_text|> <|eot_id|>text<|eot_id|>",
    "<\u{ff5c}User\u{ff5c}>x<\u{ff5c}fim\u{2581}hole\u{ff5c}>y",
    "<tool> <tool>  <word>  x<word>y <mask> [CLS] [SEP] [UNK] <unk>",
    "fn main() { println!(\"{:?}\", a[0] as u8); } // x != y && z",
    "{\"a\": [1, 2.5e-3, null], \"b\": \"\\u00e9\"}",
    "don't we'll I'M 12345678901234567890 3.14",
    "https://example.com/a_b?c=d&e=%20f#g",
    "<0x41> <0x0A> \u{120}the \u{10a}",
    "## head ##ing # a",
    "",
    " ",
    "   ",
    "\n",
    "a",
];

/// The pieces, and `count` texts made of several.
pub(crate) fn all(count: usize) -> Vec<String> {
    let mut texts: Vec<String> = PIECES.iter().map(|piece| (*piece).to_owned()).collect();
    let mut seed = 7_u64;
    let mut next = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        usize::try_from(seed >> 33).unwrap() % below
    };
    for _ in 0..count {
        let mut text = String::new();
        for _ in 0..2 + next(12) {
            text.push_str(PIECES[next(PIECES.len())]);
            text.push_str(["", " ", "\n", "  "][next(4)]);
        }
        texts.push(text);
    }
    texts
}
