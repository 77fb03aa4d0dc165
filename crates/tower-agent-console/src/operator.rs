use std::fmt;
use std::sync::Arc;

#[cfg(feature = "inbox")]
use tower_agent_conversations::Roles;

#[cfg(feature = "inbox")]
use crate::fork::Fork;

/// Somebody who may look at the console, as the application has authenticated them.
///
/// By default they see runs without the texts in them, and users as hashes, and may neither answer,
/// resume nor delete anything.
///
/// ```
/// use tower_agent_console::Operator;
///
/// let on_duty = Operator::new("sam").sees_content().sees_users();
/// assert_eq!(on_duty.name(), "sam");
/// ```
#[derive(Clone)]
#[must_use]
pub struct Operator {
    name: Arc<str>,
    pub(crate) sees_users: bool,
    pub(crate) sees_content: bool,
    pub(crate) manages_data: bool,
    pub(crate) resumes_runs: bool,
    #[cfg(feature = "inbox")]
    pub(crate) roles: Roles,
}

impl Operator {
    /// Creates an operator, whose name is in the audit of what they do.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            sees_users: false,
            sees_content: false,
            manages_data: false,
            resumes_runs: false,
            #[cfg(feature = "inbox")]
            roles: Roles::default(),
        }
    }

    /// Shows them the ids of users in the clear.
    pub fn sees_users(mut self) -> Self {
        self.sees_users = true;
        self
    }

    /// Shows them [recorded content](crate::Console::record_content).
    pub fn sees_content(mut self) -> Self {
        self.sees_content = true;
        self
    }

    /// Lets them export and delete runs, one or all of a user's. An export has what they see: users
    /// in the clear and texts only with the roles for these.
    pub fn manages_data(mut self) -> Self {
        self.manages_data = true;
        self
    }

    /// Lets them go on with [durable runs](crate::Console::durable_runs) whose processes have died.
    pub fn resumes_runs(mut self) -> Self {
        self.resumes_runs = true;
        self
    }

    /// Shows them the questions for these roles, which they may answer, in the name of the operator
    /// unless the roles have [another](Roles::named). A question has what is asked about, such as
    /// the arguments of a call, whether they see other content or not.
    #[cfg(feature = "inbox")]
    #[cfg_attr(docsrs, doc(cfg(feature = "inbox")))]
    pub fn answers_as(mut self, roles: Roles) -> Self {
        self.roles = match roles.name() {
            Some(_) => roles,
            None => roles.named(self.name.clone()),
        };
        self
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// Returns whether they may fork runs from the page.
    #[cfg(feature = "inbox")]
    pub(crate) fn may_fork(&self) -> bool {
        !self.roles.only(Fork::ROLE).is_empty() && self.sees_content
    }

    pub(crate) fn may_answer(&self) -> bool {
        #[cfg(feature = "inbox")]
        return !self.roles.is_empty();
        #[cfg(not(feature = "inbox"))]
        false
    }
}

impl fmt::Debug for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator")
            .field("name", &self.name)
            .field("sees_users", &self.sees_users)
            .field("sees_content", &self.sees_content)
            .field("manages_data", &self.manages_data)
            .field("resumes_runs", &self.resumes_runs)
            .finish_non_exhaustive()
    }
}
