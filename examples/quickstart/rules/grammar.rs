//! The grammar of the rules.
//!
//! ```text
//! message     = [ sentence ] { end [ sentence ] } ;
//! sentence    = { joint } wish { joint { joint } wish } { joint } ;
//! wish        = { opening } ( deletion | calculation ) ;
//! deletion    = "delete everything" | "delete all records" | "delete all the records" ;
//! calculation = sum { joint { joint } continued } ;
//! continued   = (* a sum whose first atom is the calculation so far, an operator after it *) ;
//!
//! sum         = product { ( plus | minus ) product } ;
//! product     = factor { ( times | over ) factor } ;
//! factor      = atom [ percent [ ( "of" | "off" ) factor ] ] ;
//! atom        = number | minus atom | "(" sum ")" ;
//!
//! opening     = "what is" | "what's" | "how much is" | "calculate" | "compute" | "please" ;
//! joint       = "," | "and" | "then" ;
//! end         = "?" | "!" | "." | ";" ;
//! plus        = "+" | "plus" ;
//! minus       = "-" | "minus" ;
//! times       = "*" | "x" | "times" | "multiplied by" ;
//! over        = "/" | "over" | "divided by" ;
//! percent     = "%" | "percent" ;
//! number      = digits { "," digit digit digit } [ "." digits ] | "." digits
//!             | "zero" | "one" | "two" | "three" | "four" | "five"
//!             | "six" | "seven" | "eight" | "nine" | "ten" ;
//! ```
//!
//! Products bind tighter than sums, both from the left. A joint before an operator closes what
//! precedes it: `2 + 3, times 4` is 20.
//!
//! `10% of 80` is 8. As on a pocket calculator `80 plus 10%` is 88, and `10% off 80`, which is `80
//! minus 10%`, is 72. Everywhere else `10%` is 0.1.
//!
//! Case does not matter. A sentence that does not match, or has more than 500 words and signs, is
//! not understood; the sentences beside it are.

use super::expr::{Expr, Operator};
use super::token::{Token, tokens};

/// One request of the user.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Wish {
    Calculate(Expr),
    DeleteEverything,
    /// The rules do not understand it.
    Unknown,
}

/// The maximum length of a sentence: each open bracket in it is a level of recursion.
const MAX_TOKENS: usize = 500;

/// Returns the requests in a message, in order.
pub(super) fn understand(text: &str) -> Vec<Wish> {
    let tokens = tokens(&text.to_lowercase());
    let sentences = tokens
        .split(|token| *token == Token::End)
        .filter(|rest| !rest.is_empty());
    let wishes = sentences.map(|rest| match rest.len() {
        ..=MAX_TOKENS => Parser { rest }.sentence(),
        _ => None,
    });
    wishes
        .flat_map(|wishes| wishes.unwrap_or_else(|| vec![Wish::Unknown]))
        .collect()
}

/// Parses a sentence; every method is a rule of the grammar and returns `None` if it does not
/// match.
struct Parser<'a> {
    rest: &'a [Token],
}

impl Parser<'_> {
    fn sentence(mut self) -> Option<Vec<Wish>> {
        self.skip(Token::Joint);
        let mut wishes = vec![self.wish()?];
        while self.skip(Token::Joint) && !self.rest.is_empty() {
            wishes.push(self.wish()?);
        }
        self.rest.is_empty().then_some(wishes)
    }

    fn wish(&mut self) -> Option<Wish> {
        self.skip(Token::Opening);
        if self.eat(Token::Delete) {
            return Some(Wish::DeleteEverything);
        }
        let mut sum = self.sum(None)?;
        while self.skip_to_operator() {
            sum = self.sum(Some(sum))?;
        }
        Some(Wish::Calculate(sum))
    }

    /// Skips joints, if an operator follows them.
    fn skip_to_operator(&mut self) -> bool {
        let joints = self
            .rest
            .iter()
            .take_while(|token| **token == Token::Joint)
            .count();
        let found = joints > 0 && matches!(self.rest.get(joints), Some(Token::Infix(_)));
        if found {
            self.rest = &self.rest[joints..];
        }
        found
    }

    fn sum(&mut self, first: Option<Expr>) -> Option<Expr> {
        let mut sum = self.product(first)?;
        while let Some(operator) = self.infix(&[Operator::Add, Operator::Subtract]) {
            sum = Expr::binary(operator, sum, self.product(None)?);
        }
        Some(sum)
    }

    fn product(&mut self, first: Option<Expr>) -> Option<Expr> {
        let mut product = match first {
            Some(first) => first,
            None => self.factor()?,
        };
        while let Some(operator) = self.infix(&[Operator::Multiply, Operator::Divide]) {
            product = Expr::binary(operator, product, self.factor()?);
        }
        Some(product)
    }

    fn factor(&mut self) -> Option<Expr> {
        let atom = self.atom()?;
        if !self.eat(Token::Percent) {
            return Some(atom);
        }
        if self.eat(Token::Of) {
            return Some(Expr::PercentOf(Box::new(atom), Box::new(self.factor()?)));
        }
        let percent = Expr::Percent(Box::new(atom));
        if self.eat(Token::Off) {
            return Some(Expr::binary(Operator::Subtract, self.factor()?, percent));
        }
        Some(percent)
    }

    fn atom(&mut self) -> Option<Expr> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        match first {
            Token::Number(number) => Some(Expr::Number(*number)),
            Token::Infix(Operator::Subtract) => Some(match self.atom()? {
                Expr::Number(number) => Expr::Number(-number),
                other => Expr::binary(Operator::Subtract, Expr::Number(0.0), other),
            }),
            Token::Open => {
                let sum = self.sum(None)?;
                self.eat(Token::Close).then_some(sum)
            }
            _ => None,
        }
    }

    fn infix(&mut self, wanted: &[Operator]) -> Option<Operator> {
        wanted
            .iter()
            .copied()
            .find(|operator| self.eat(Token::Infix(*operator)))
    }

    fn eat(&mut self, wanted: Token) -> bool {
        let found = self.rest.first() == Some(&wanted);
        self.rest = &self.rest[usize::from(found)..];
        found
    }

    /// Skips any number of these; returns whether there was one.
    fn skip(&mut self, unwanted: Token) -> bool {
        let mut found = false;
        while self.eat(unwanted) {
            found = true;
        }
        found
    }
}
