//! Calls that wait for a person: guards are always asked, and an answer lets one call through once.

mod answers;
mod asked;
mod guards;
mod resumes;
mod tool_names;
