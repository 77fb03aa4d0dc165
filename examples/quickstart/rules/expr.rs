//! Calculations and their text.

use std::fmt;

/// A calculation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    Number(f64),
    /// A percentage; the surrounding expression says of what.
    Percent(Box<Self>),
    PercentOf(Box<Self>, Box<Self>),
    Binary(Operator, Box<Self>, Box<Self>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

impl Expr {
    pub(super) fn binary(operator: Operator, left: Self, right: Self) -> Self {
        Self::Binary(operator, Box::new(left), Box::new(right))
    }

    /// Returns the operator precedence; an operand with a lower one needs brackets.
    fn strength(&self) -> u8 {
        match self {
            Self::Binary(operator, ..) => operator.strength(),
            Self::Percent(_) | Self::PercentOf(..) => 2,
            Self::Number(_) => 3,
        }
    }

    fn fmt_inside(&self, f: &mut fmt::Formatter<'_>, strength: u8) -> fmt::Result {
        match self.strength() < strength {
            true => write!(f, "({self})"),
            false => write!(f, "{self}"),
        }
    }
}

impl Operator {
    fn strength(self) -> u8 {
        match self {
            Self::Add | Self::Subtract => 0,
            Self::Multiply | Self::Divide => 1,
        }
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => Decimal(*number).fmt(f),
            Self::Percent(percent) => {
                percent.fmt_inside(f, 3)?;
                f.write_str("%")
            }
            Self::PercentOf(percent, whole) => {
                percent.fmt_inside(f, 3)?;
                f.write_str("% of ")?;
                whole.fmt_inside(f, 2)
            }
            Self::Binary(operator, left, right) => {
                left.fmt_inside(f, operator.strength())?;
                write!(f, " {operator} ")?;
                right.fmt_inside(f, operator.strength() + 1)
            }
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "plus",
            Self::Subtract => "minus",
            Self::Multiply => "times",
            Self::Divide => "divided by",
        })
    }
}

/// A number as people write it: twelve significant digits, no trailing zeros.
pub(super) struct Decimal(pub(super) f64);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(number) = *self;
        if number == 0.0 {
            return f.write_str("0");
        }
        let whole_digits = number.abs().log10().floor() as i32 + 1;
        let text = format!(
            "{number:.*}",
            usize::try_from(12 - whole_digits).unwrap_or(0)
        );
        f.write_str(match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.'),
            false => &text,
        })
    }
}
