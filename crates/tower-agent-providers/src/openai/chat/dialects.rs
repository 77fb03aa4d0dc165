use super::dialect::{Dialect, LimitField, ReasoningField, SchemaSupport};
use crate::protocol::is_under;

/// The table of [dialects](Dialect): that of a call is found by its host and its model.
///
/// | host | differs from the default by |
/// |---|---|
/// | OpenAI, Azure, GitHub Models | `max_completion_tokens`; no reasoning |
/// | OpenRouter, Vercel's gateway, Snowflake | `reasoning_details` |
/// | DeepSeek, Moonshot | `reasoning_content`, in every message unless thinking is off; schemas in the instructions; no forced tool choice |
/// | Z.ai | `reasoning_content`; schemas in the instructions; no forced tool choice |
/// | Mistral | reasoning in the content |
/// | Cerebras, Together, Ollama's cloud | `reasoning` |
/// | Groq | no reasoning; schemas for few models, and without tools |
/// | Perplexity, Hugging Face | no reasoning |
/// | Google's `/openai`, AI Studio and Vertex | schemas in the words of OpenAPI; no reasoning |
/// | xAI, Fireworks | nothing |
/// | vLLM, llama.cpp, LM Studio, Ollama | nothing: reasoning goes back in the field in which it came |
/// | any other | nothing, but `max_completion_tokens` and no reasoning without details for models of OpenAI |
///
/// Rules that are added come before these, the last one first:
///
/// ```
/// use tower_agent_providers::openai::{Dialect, Dialects, ReasoningField};
///
/// let mut strict = Dialect::default();
/// strict.reasoning = ReasoningField::None;
/// let dialects = Dialects::new().for_host("models.example.com", strict);
/// assert_eq!(dialects.find("eu.models.example.com", Some("llama-3.3")), strict);
/// assert_eq!(dialects.find("localhost", Some("llama-3.3")), Dialect::default());
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Dialects {
    /// The rules that were added, the last one first.
    added: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    host: String,
    model: String,
    dialect: Dialect,
}

const OPENAI: Dialect = Dialect {
    reasoning: ReasoningField::None,
    limit: LimitField::MaxCompletionTokens,
    ..Dialect::new()
};

/// A gateway sends details that OpenAI itself does not, and takes them back.
const OPENAI_MODEL: Dialect = Dialect {
    reasoning: ReasoningField::DetailsAsReceived,
    limit: LimitField::MaxCompletionTokens,
    ..Dialect::new()
};

/// The servers behind these are many, and some of them reject fields that they do not know.
const STRICT: Dialect = Dialect {
    reasoning: ReasoningField::None,
    ..Dialect::new()
};

const GOOGLE: Dialect = Dialect {
    open_api_schemas: true,
    ..STRICT
};

const DETAILS: Dialect = Dialect {
    reasoning: ReasoningField::ReasoningDetails,
    ..Dialect::new()
};

const DEEPSEEK: Dialect = Dialect {
    requires_reasoning: true,
    ..ZAI
};

const ZAI: Dialect = Dialect {
    reasoning: ReasoningField::ReasoningContent,
    schemas: SchemaSupport::Never,
    forced_tool_choice: false,
    ..Dialect::new()
};

const REASONING: Dialect = Dialect {
    reasoning: ReasoningField::Reasoning,
    ..Dialect::new()
};

const CEREBRAS: Dialect = Dialect {
    limit: LimitField::MaxCompletionTokens,
    ..REASONING
};

const GROQ: Dialect = Dialect {
    schemas: SchemaSupport::Never,
    ..STRICT
};

const GROQ_SCHEMAS: Dialect = Dialect {
    schemas: SchemaSupport::WithoutTools,
    ..STRICT
};

const MISTRAL: Dialect = Dialect {
    reasoning: ReasoningField::Content,
    ..Dialect::new()
};

const SNOWFLAKE: Dialect = Dialect {
    limit: LimitField::MaxCompletionTokens,
    ..DETAILS
};

/// The rules for known hosts and models, of which the first that matches counts: the domain of the
/// host, and the start of the model's name, where empty is any.
#[rustfmt::skip]
const KNOWN: &[(&str, &str, Dialect)] = &[
    ("openai.com", "", OPENAI),
    // Azure's gateway to Mistral rejects the newer name of the limit.
    ("azure.com", "mistral", STRICT),
    ("azure.com", "ministral", STRICT),
    ("azure.com", "magistral", STRICT),
    ("azure.com", "codestral", STRICT),
    ("openai.azure.com", "", OPENAI),
    ("services.ai.azure.com", "", OPENAI),
    ("cognitiveservices.azure.com", "", OPENAI),
    ("models.inference.ai.azure.com", "", OPENAI),
    ("models.github.ai", "", OPENAI),
    ("openrouter.ai", "", DETAILS),
    ("ai-gateway.vercel.sh", "", DETAILS),
    ("snowflakecomputing.com", "", SNOWFLAKE),
    ("deepseek.com", "", DEEPSEEK),
    ("moonshot.ai", "", DEEPSEEK),
    ("moonshot.cn", "", DEEPSEEK),
    ("kimi.com", "", DEEPSEEK),
    ("z.ai", "", ZAI),
    ("bigmodel.cn", "", ZAI),
    ("mistral.ai", "", MISTRAL),
    ("cerebras.ai", "", CEREBRAS),
    ("together.xyz", "", REASONING),
    ("together.ai", "", REASONING),
    ("ollama.com", "", REASONING),
    ("groq.com", "gpt-oss", GROQ_SCHEMAS),
    ("groq.com", "kimi-k2", GROQ_SCHEMAS),
    ("groq.com", "llama-4", GROQ_SCHEMAS),
    ("groq.com", "", GROQ),
    ("perplexity.ai", "", STRICT),
    ("huggingface.co", "", STRICT),
    ("googleapis.com", "", GOOGLE),
    // On hosts that are not known.
    ("", "gpt-5", OPENAI_MODEL),
    ("", "o1", OPENAI_MODEL),
    ("", "o3", OPENAI_MODEL),
    ("", "o4", OPENAI_MODEL),
];

impl Dialects {
    /// Creates the table of the known hosts and models.
    pub const fn new() -> Self {
        Self { added: Vec::new() }
    }

    /// Sets the dialect of a host and of all hosts under its domain, whatever the model.
    pub fn for_host(self, domain: impl Into<String>, dialect: Dialect) -> Self {
        self.with(domain.into(), String::new(), dialect)
    }

    /// Sets the dialect of the models whose names begin with `prefix`, whatever the host. What
    /// stands before the last `/` of a name is left out.
    pub fn for_model(self, prefix: impl Into<String>, dialect: Dialect) -> Self {
        self.with(String::new(), prefix.into(), dialect)
    }

    fn with(mut self, host: String, model: String, dialect: Dialect) -> Self {
        let rule = Rule {
            host,
            model,
            dialect,
        };
        self.added.insert(0, rule);
        self
    }

    /// Returns the dialect of a model on a host.
    #[must_use]
    pub fn find(&self, host: &str, model: Option<&str>) -> Dialect {
        // Gateways put the maker before the name.
        let model = model
            .and_then(|model| model.rsplit('/').next())
            .unwrap_or_default();
        let mut added = self.added.iter();
        if let Some(rule) = added.find(|rule| matches(&rule.host, &rule.model, host, model)) {
            return rule.dialect;
        }
        let mut known = KNOWN.iter();
        known
            .find(|(domain, prefix, _)| matches(domain, prefix, host, model))
            .map_or(Dialect::new(), |(_, _, dialect)| *dialect)
    }
}

/// Creates a table of one dialect for every host and model.
impl From<Dialect> for Dialects {
    fn from(dialect: Dialect) -> Self {
        Self::new().for_host("", dialect)
    }
}

fn matches(domain: &str, prefix: &str, host: &str, model: &str) -> bool {
    is_under(domain, host) && has_prefix(prefix, model)
}

fn has_prefix(prefix: &str, model: &str) -> bool {
    let start = model.as_bytes().get(..prefix.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}
