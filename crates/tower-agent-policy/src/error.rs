use std::fmt;

/// The error of rules, a schema or a declaration of a tool: every problem, not only the first.
///
/// Its text has a line for each, with the file and the line of the problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    problems: Vec<Problem>,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The name of the file, as it was given; empty if the problem is in none.
    pub file: String,
    /// The line in the file, from 1, if it is known.
    pub line: Option<usize>,
    /// The problem, with the names that it is about.
    pub message: String,
    /// The thing to do, such as the nearest right name.
    pub help: Option<String>,
}

impl PolicyError {
    pub(crate) fn new(problems: Vec<Problem>) -> Self {
        Self { problems }
    }

    /// Returns the problems.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl From<Problem> for PolicyError {
    fn from(problem: Problem) -> Self {
        Self::new(vec![problem])
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the policy cannot be used")?;
        for problem in &self.problems {
            write!(f, "\n{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for PolicyError {}

impl Problem {
    /// Creates a problem that stands in no file.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            file: String::new(),
            line: None,
            message: message.into(),
            help: None,
        }
    }

    /// Creates a problem in this line of a file.
    pub(crate) fn at(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line: Some(line),
            ..Self::new(message)
        }
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Describes what Cedar has found in the text of a file.
    pub(crate) fn of(file: &str, text: &str, found: &dyn miette::Diagnostic) -> Self {
        let offset = found
            .labels()
            .and_then(|mut labels| labels.next())
            .map(|label| label.offset());
        Self {
            file: file.to_owned(),
            line: offset.map(|offset| line_of(text, offset)),
            message: found.to_string(),
            help: found.help().map(|help| help.to_string()),
        }
    }
}

/// Returns the number of the line with this byte, from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    1 + before.filter(|byte| **byte == b'\n').count()
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.file, self.line) {
            ("", _) => {}
            (file, Some(line)) => write!(f, "{file}:{line}: ")?,
            (file, None) => write!(f, "{file}: ")?,
        }
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

/// Returns the name among these that is nearest to a misspelt one, if one is near.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let near = known
        .into_iter()
        .map(|known| (distance(name, known), known))
        .min_by_key(|(distance, _)| *distance);
    near.filter(|(distance, _)| *distance <= 1 + name.len() / 3)
        .map(|(_, known)| known)
}

/// Returns the number of characters to add, remove or replace to get from one name to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, character) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (at, other) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(character != *other);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(row[at] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}
