//! The bytes of words.

/// Returns whether a byte is a letter or a digit of ASCII, `_` or `-`. All providers accept it in a
/// name and in the id of a call, and JSON writes it as it is.
pub(crate) fn is_word(byte: u8) -> bool {
    IS_WORD[usize::from(byte)]
}

/// Each id, name and field is checked in every call, often twice: one look-up for a byte.
static IS_WORD: [bool; 256] = {
    let mut is_word = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        let letter = byte as u8;
        is_word[byte] = letter.is_ascii_alphanumeric() || letter == b'_' || letter == b'-';
        byte += 1;
    }
    is_word
};
