/// Replaces each half of a character in JSON text by `U+FFFD`; returns `None` if there is none.
///
/// A character above `U+FFFF` is escaped as two halves, as in `"\ud83d\ude00"`. Programs that cut
/// strings between them write one half, which is no character, and readers refuse the whole text
/// for it. Ask this when reading has failed.
///
/// ```
/// use tower_agent::message::whole_characters;
///
/// let cut = r#"{"text":"Hi \ud83d"}"#;
/// assert_eq!(whole_characters(cut).unwrap(), r#"{"text":"Hi \ufffd"}"#);
/// assert_eq!(whole_characters(r#"{"text":"Hi \ud83d\ude00"}"#), None);
/// ```
#[must_use]
pub fn whole_characters(json: &str) -> Option<String> {
    let bytes = json.as_bytes();
    let mut mended: Option<String> = None;
    // The end of what has been copied.
    let mut copied = 0;
    let mut at = 0;
    while let Some(found) = json[at..].find('\\') {
        at += found;
        let Some(unit) = unit(bytes, at) else {
            // Another escape, or none at all: two bytes of ASCII, or the end.
            at = (at + 2).min(bytes.len());
            while !json.is_char_boundary(at) {
                at += 1;
            }
            continue;
        };
        let end = at + 6;
        let is_high = (0xd800..0xdc00).contains(&unit);
        let is_low = (0xdc00..0xe000).contains(&unit);
        let next = self::unit(bytes, end);
        if is_high && next.is_some_and(|next| (0xdc00..0xe000).contains(&next)) {
            at = end + 6;
            continue;
        }
        if is_high || is_low {
            let mended = mended.get_or_insert_default();
            mended.push_str(&json[copied..at]);
            mended.push_str("\\ufffd");
            copied = end;
        }
        at = end;
    }
    let mut mended = mended?;
    mended.push_str(&json[copied..]);
    Some(mended)
}

/// Returns the number in an escape such as `\ud83d` that begins here.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
    // The parser would accept a sign.
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
