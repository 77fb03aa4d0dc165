/// The names that LiteLLM's table of prices has for the providers with these domains.
const PROVIDERS: [(&str, &str); 26] = [
    ("openai.com", "openai"),
    ("openai.azure.com", "azure"),
    ("cognitiveservices.azure.com", "azure"),
    ("services.ai.azure.com", "azure_ai"),
    ("anthropic.com", "anthropic"),
    ("generativelanguage.googleapis.com", "gemini"),
    ("openrouter.ai", "openrouter"),
    ("ai-gateway.vercel.sh", "vercel_ai_gateway"),
    ("deepseek.com", "deepseek"),
    ("x.ai", "xai"),
    ("mistral.ai", "mistral"),
    ("groq.com", "groq"),
    ("perplexity.ai", "perplexity"),
    ("together.xyz", "together_ai"),
    ("together.ai", "together_ai"),
    ("fireworks.ai", "fireworks_ai"),
    ("cerebras.ai", "cerebras"),
    ("z.ai", "zai"),
    ("bigmodel.cn", "zai"),
    ("moonshot.ai", "moonshot"),
    ("moonshot.cn", "moonshot"),
    ("snowflakecomputing.com", "snowflake"),
    ("huggingface.co", "huggingface"),
    ("models.github.ai", "github"),
    ("models.inference.ai.azure.com", "github"),
    ("ollama.com", "ollama"),
];

/// Returns the name of the provider that a host belongs to, if it is known.
pub(crate) fn provider_name(host: &str) -> Option<&'static str> {
    let mut providers = PROVIDERS.iter();
    let found = providers.find(|(domain, _)| is_under(domain, host));
    found.map_or_else(|| cloud(host), |(_, name)| Some(*name))
}

/// Returns who makes the opaque data of the answers from a host, such as signatures, and whether it
/// is bound to an account there. A host that is not known is an issuer of its own.
///
/// A company that serves its models at several places takes the data of each of them at the others.
pub(crate) fn issuer_of_host<'a>(provider: &str, target: &str, host: &'a str) -> (&'a str, bool) {
    let is_cloud = target != provider;
    match provider {
        // Nothing but Claude speaks this protocol in a cloud.
        "anthropic"
            if is_cloud
                || ["anthropic.com", "azure.com"]
                    .iter()
                    .any(|own| is_under(own, host)) =>
        {
            ("anthropic", false)
        }
        "gemini" | "gemini_interactions" if is_cloud || is_under("googleapis.com", host) => {
            ("google", false)
        }
        "bedrock" => ("bedrock", false),
        // Reasoning is sealed for an organisation. On Azure that is a resource, which has a host.
        "openai_responses" if is_under("openai.com", host) => ("openai", true),
        _ if is_under("azure.com", host) => (host, false),
        _ => (provider_name(host).unwrap_or(host), false),
    }
}

/// Returns the name of a cloud, whose hosts stand beside others under one domain: they are known by
/// the service in them, as in `bedrock-runtime.eu-west-1.amazonaws.com`.
fn cloud(host: &str) -> Option<&'static str> {
    host.split('.').find_map(|label| match label {
        "bedrock-runtime" | "bedrock-mantle" => Some("bedrock"),
        "aiplatform" => Some("vertex_ai"),
        // The name of a region comes first, as in `europe-west4-aiplatform`.
        label if label.ends_with("-aiplatform") => Some("vertex_ai"),
        _ => None,
    })
}

/// Returns whether a host is that of a domain, or one under it. An empty domain has every host.
pub(crate) fn is_under(domain: &str, host: &str) -> bool {
    let Some(start) = host.len().checked_sub(domain.len()) else {
        return false;
    };
    // The end of another name is no domain: `notz.ai` is not `z.ai`.
    let is_whole = domain.is_empty() || start == 0 || host.as_bytes()[start - 1] == b'.';
    is_whole && host.as_bytes()[start..].eq_ignore_ascii_case(domain.as_bytes())
}
