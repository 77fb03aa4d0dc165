//! Words and signs, and their meaning.

use super::expr::Operator;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token {
    Number(f64),
    Infix(Operator),
    Percent,
    Of,
    Off,
    Open,
    Close,
    Opening,
    Joint,
    End,
    Delete,
    Unknown,
}

/// Returns the tokens of a lower-case text.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let lexemes: Vec<_> = lexemes(text).collect();
    let mut rest = &lexemes[..];
    let mut tokens = Vec::new();
    while !rest.is_empty() {
        let (token, length) = first(rest);
        tokens.push(token);
        rest = &rest[length..];
    }
    tokens
}

/// Returns the first token, and its number of words or signs.
fn first(lexemes: &[&str]) -> (Token, usize) {
    let token = match lexemes {
        ["how", "much", "is", ..] => return (Token::Opening, 3),
        ["what", "is", ..] => return (Token::Opening, 2),
        ["what's" | "calculate" | "compute" | "please", ..] => Token::Opening,
        ["delete", "all", "the", "records", ..] => return (Token::Delete, 4),
        ["delete", "all", "records", ..] => return (Token::Delete, 3),
        ["delete", "everything", ..] => return (Token::Delete, 2),
        ["," | "and" | "then", ..] => Token::Joint,
        ["?" | "!" | "." | ";", ..] => Token::End,
        ["+" | "plus", ..] => Token::Infix(Operator::Add),
        ["-" | "minus", ..] => Token::Infix(Operator::Subtract),
        ["multiplied", "by", ..] => return (Token::Infix(Operator::Multiply), 2),
        ["*" | "x" | "times", ..] => Token::Infix(Operator::Multiply),
        ["divided", "by", ..] => return (Token::Infix(Operator::Divide), 2),
        ["/" | "over", ..] => Token::Infix(Operator::Divide),
        ["%" | "percent", ..] => Token::Percent,
        ["of", ..] => Token::Of,
        ["off", ..] => Token::Off,
        ["(", ..] => Token::Open,
        [")", ..] => Token::Close,
        [word, ..] => number(word).map_or(Token::Unknown, Token::Number),
        [] => Token::Unknown,
    };
    (token, 1)
}

fn number(word: &str) -> Option<f64> {
    const WORDS: [&str; 11] = [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
    ];
    if let Some(number) = WORDS.iter().position(|known| *known == word) {
        return Some(number as f64);
    }
    if !word.ends_with(|last: char| last.is_ascii_digit()) {
        return None;
    }
    word.replace(',', "")
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite())
}

/// Splits a text into words, numbers and signs.
fn lexemes(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let first = rest.chars().next()?;
        let length = match number_length(rest) {
            0 if first.is_alphabetic() => rest
                .find(|c: char| !c.is_alphabetic() && c != '\'')
                .unwrap_or(rest.len()),
            0 => first.len_utf8(),
            number => number,
        };
        let lexeme;
        (lexeme, rest) = rest.split_at(length);
        Some(lexeme)
    })
}

/// Returns the length of the number at the start of a text, such as `840`, `1,000.5` or `.5`.
fn number_length(text: &str) -> usize {
    let mut length = digits(text);
    while length > 0 && text[length..].strip_prefix(',').map(digits) == Some(3) {
        length += ",000".len();
    }
    match text[length..].strip_prefix('.').map(digits) {
        Some(decimals) if decimals > 0 => length + ".".len() + decimals,
        _ => length,
    }
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}
