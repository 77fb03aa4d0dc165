//! Rules of your business: from the first rule to a change while the shop is open.

#![doc = include_str!("rules_of_your_business.md")]
