use serde::Serialize;

/// The decision of rules about a call, or about its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Ruling {
    /// The consequence.
    #[serde(flatten)]
    pub verdict: RulingVerdict,
    /// The ids of the policies that have decided, in the order in which they stand in the files.
    pub policies: Vec<String>,
    /// The ids of policies that could not be evaluated. Each is a refusal.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// The words that the policies which have decided [tell](crate#annotations) the model.
    #[serde(skip)]
    pub tell: Vec<String>,
    /// The problem, for the program's log, without values of arguments.
    #[serde(skip)]
    pub detail: Option<String>,
}

/// The consequence of a [`Ruling`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "decision", rename_all = "snake_case")]
#[non_exhaustive]
pub enum RulingVerdict {
    /// It may be made.
    Allowed,
    /// It may be made once somebody of each of these roles has approved it.
    #[non_exhaustive]
    Asked {
        /// The roles, in the order in which they are asked.
        roles: Vec<String>,
    },
    /// It may not be made.
    #[non_exhaustive]
    Refused {
        /// The reason.
        why: RefusalReason,
    },
}

/// The reason why a call or a result is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RefusalReason {
    /// A policy forbids it.
    Forbidden,
    /// No policy permits it.
    NotPermitted,
    /// A policy could not be evaluated.
    RuleFailed,
    /// The run does not say who it is for.
    NoPrincipal,
    /// The entities of the principal are not known.
    NoEntities,
    /// The call is not as the schema says, such as an argument that the tool does not declare.
    Misfit,
    /// The tool exists, and the policy does not know it.
    UnknownTool,
    /// [`Flow`](tower_agent_middleware::flow::Flow) is part of the rules, and not around the call.
    NoFlow,
    /// Something answered in place of the tool before anything could be decided.
    NotDecided,
}

impl Ruling {
    pub(crate) fn allowed(policies: Vec<String>) -> Self {
        Self {
            verdict: RulingVerdict::Allowed,
            policies,
            errors: Vec::new(),
            tell: Vec::new(),
            detail: None,
        }
    }

    pub(crate) fn asked(roles: Vec<String>, policies: Vec<String>) -> Self {
        Self {
            verdict: RulingVerdict::Asked { roles },
            ..Self::allowed(policies)
        }
    }

    pub(crate) fn refused(why: RefusalReason) -> Self {
        Self {
            verdict: RulingVerdict::Refused { why },
            ..Self::allowed(Vec::new())
        }
    }

    pub(crate) fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Returns whether it may be made, without asking anybody.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        self.verdict == RulingVerdict::Allowed
    }

    /// Returns why it may not be made; `None` if it may, or somebody is asked.
    #[must_use]
    pub fn refusal(&self) -> Option<RefusalReason> {
        match self.verdict {
            RulingVerdict::Refused { why } => Some(why),
            _ => None,
        }
    }

    /// Returns the roles that are asked.
    #[must_use]
    pub fn asked_roles(&self) -> &[String] {
        match &self.verdict {
            RulingVerdict::Asked { roles } => roles,
            _ => &[],
        }
    }

    /// Panics unless it is allowed: for tests of rules.
    #[track_caller]
    #[expect(clippy::panic, reason = "it is an assertion")]
    pub fn assert_allowed(&self) {
        if !self.is_allowed() {
            panic!("it is not allowed: {self:?}");
        }
    }

    /// Panics unless it is refused, and this policy is among those that refuse it: for tests of
    /// rules.
    #[track_caller]
    #[expect(clippy::panic, reason = "it is an assertion")]
    pub fn assert_refused_by(&self, policy: &str) {
        if self.refusal().is_none() || !self.policies.iter().any(|id| id == policy) {
            panic!("it is not refused by `{policy}`: {self:?}");
        }
    }

    /// Panics unless somebody of this role is asked: for tests of rules.
    #[track_caller]
    #[expect(clippy::panic, reason = "it is an assertion")]
    pub fn assert_asks(&self, role: &str) {
        if !self.asked_roles().iter().any(|asked| asked == role) {
            panic!("`{role}` is not asked: {self:?}");
        }
    }

    /// Returns the text for the model about a refusal.
    pub(crate) fn text(&self, tool: &str, is_result: bool) -> String {
        if !self.tell.is_empty() {
            return format!("refused: {}", self.tell.join(" "));
        }
        let what = if is_result {
            format!("the result of `{tool}`")
        } else {
            format!("`{tool}`")
        };
        match self.refusal() {
            // The place is the model's own, and helps it to write the call as it should be.
            Some(RefusalReason::Misfit) => match &self.detail {
                Some(detail) => {
                    format!("refused: the rules for {what} cannot be applied: {detail}")
                }
                None => format!("refused: the rules for {what} cannot be applied"),
            },
            Some(RefusalReason::Forbidden | RefusalReason::NotPermitted) if is_result => {
                format!("refused: {what} may not be shown here")
            }
            Some(RefusalReason::Forbidden | RefusalReason::NotPermitted) => {
                format!("refused: {what} exists, and the rules do not allow this call")
            }
            _ => format!("refused: it could not be decided whether the rules allow {what}"),
        }
    }
}
