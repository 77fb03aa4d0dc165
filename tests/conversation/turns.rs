//! Several turns of one conversation, saved as text between them.

use std::collections::HashMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tower_agent::{Agent, AgentRequest, BoxError, Checkpoint, Effect, Tool};
use tower_agent_test::{ScriptedModel, Turn};

struct Shop {
    prices: HashMap<String, f64>,
}

impl Shop {
    async fn price(&self, article: &str) -> Result<f64, BoxError> {
        Ok(*self
            .prices
            .get(article)
            .ok_or_else(|| format!("no row for {article}"))?)
    }
}

#[derive(Deserialize, JsonSchema)]
struct Order {
    article: String,
    /// One, if it is not said.
    count: Option<u32>,
}

fn shop_tools(shop: &Arc<Shop>) -> [Tool; 2] {
    let (prices, orders) = (shop.clone(), shop.clone());
    let price = Tool::function(
        "price",
        "The price of an article.",
        move |article: String| {
            let shop = prices.clone();
            async move { shop.price(&article).await }
        },
    );
    let order = Tool::function("order", "Orders.", move |Order { article, count }| {
        let shop = orders.clone();
        async move { Ok::<_, BoxError>(shop.price(&article).await? * f64::from(count.unwrap_or(1))) }
    });
    [price.effect(Effect::Pure), order]
}

/// A chat: tools with a dependency, several turns, the session kept as text between them.
#[tokio::test]
async fn a_chat_of_several_turns_with_tools_that_share_a_shop() {
    let model = ScriptedModel::new([
        Turn::tool("price", json!({ "value": "tea" })),
        Turn::from_text("2.50"),
        Turn::tool("order", json!({ "article": "tea", "count": 2 })),
        Turn::from_text("That is 5."),
    ]);
    let shop = Arc::new(Shop {
        prices: HashMap::from([("tea".to_owned(), 2.5)]),
    });
    let agent = Agent::builder(model.clone())
        .tools(shop_tools(&shop))
        .build()
        .unwrap();

    let mut saved = serde_json::to_string(&Checkpoint::default()).unwrap();
    for (asked, expected) in [("What is tea?", "2.50"), ("Two, please.", "That is 5.")] {
        let checkpoint: Checkpoint = serde_json::from_str(&saved).unwrap();
        let request = AgentRequest::resume(checkpoint).with_message(asked);
        let response = agent.run(request).await.unwrap();
        assert_eq!(response.text(), expected);
        saved = serde_json::to_string(&response.checkpoint()).unwrap();
    }
    assert_eq!(model.requests()[3].messages().len(), 7);
    model.assert_done();
}
