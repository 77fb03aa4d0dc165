use std::sync::Arc;

use http::request::Parts;
use rmcp::service::{RequestContext, RoleServer};
use tokio_util::sync::CancellationToken;
use tower_agent::AgentRequest;

/// The caller of a tool, for the tool and for callbacks: an
/// [extension](tower_agent::RunContext::extension) of the run. Over HTTP the head of the request,
/// [`http::request::Parts`], is one as well.
///
/// ```
/// use tower_agent::tool::ToolDeclaration;
/// use tower_agent::{Request, Tool, ToolRequest, ToolResponse};
/// use tower_agent_mcp::server::Caller;
///
/// let orders = Tool::service(
///     ToolDeclaration::new("orders", "Lists the orders of the user."),
///     tower::service_fn(|request: ToolRequest| async move {
///         let caller = request.context().extension::<Caller>().ok();
///         let user = caller.and_then(|caller| caller.principal.clone());
///         Ok::<_, tower_agent::Error>(match user {
///             Some(user) => ToolResponse::new(format!("the orders of {user}")),
///             None => ToolResponse::error("nobody is signed in"),
///         })
///     }),
/// );
/// # drop(orders);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caller {
    /// The [principal](super::McpServerBuilder::principal), if the server has one for each request.
    pub principal: Option<Arc<str>>,
    /// The name that the client has given itself. Nobody has checked it.
    pub client: Option<Arc<str>>,
    /// The version that the client has given itself.
    pub client_version: Option<Arc<str>>,
}

/// The principal of a request, among its HTTP extensions.
#[derive(Clone)]
pub(super) struct Principal(pub(super) Arc<str>);

/// The token of a call over HTTP, among its HTTP extensions. It is cancelled when nobody waits for
/// the response any more.
#[derive(Clone)]
pub(super) struct CallToken(pub(super) CancellationToken);

/// The sender of a call, as the server knows it.
pub(super) struct Sender {
    pub(super) caller: Caller,
    parts: Option<Parts>,
}

impl Sender {
    pub(super) fn of(context: &RequestContext<RoleServer>) -> Self {
        let parts = context.extensions.get::<Parts>().cloned();
        let principal = parts
            .as_ref()
            .and_then(|parts| parts.extensions.get::<Principal>());
        let client = context.client_info();
        let caller = Caller {
            principal: principal.map(|principal| principal.0.clone()),
            client: client.as_ref().map(|client| client.name.as_str().into()),
            client_version: client.map(|client| client.version.into()),
        };
        Self { caller, parts }
    }

    /// Gives a run what is known of its sender.
    pub(super) fn introduce(&self, request: AgentRequest) -> AgentRequest {
        let request = request.with_extension(self.caller.clone());
        match &self.parts {
            Some(parts) => request.with_extension(parts.clone()),
            None => request,
        }
    }
}
