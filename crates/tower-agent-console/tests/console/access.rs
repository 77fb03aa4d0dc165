//! Who may ask, and what those send who may not.

use http::{Method, Request, StatusCode};
use serde_json::json;
use tower_agent::{Agent, AgentRequest};
use tower_agent_console::{Console, ConsoleService, Operator};
use tower_agent_test::{ScriptedModel, Turn};

use crate::world::{User, get, runs, send, service, service_for, text, user_of};

const PATHS: [&str; 9] = [
    "/",
    "/app.js",
    "/style.css",
    "/api/me",
    "/api/runs",
    "/api/agents",
    "/api/limits",
    "/api/audit",
    "/api/live",
];

async fn status(service: &ConsoleService, headers: &[(&str, &str)], path: &str) -> StatusCode {
    let mut request = Request::get(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    send(service, request.body(String::new()).unwrap())
        .await
        .status()
}

#[tokio::test]
async fn nobody_gets_nothing() {
    let service = Console::new().into_service(|_| None);
    for path in PATHS {
        assert_eq!(get(&service, path).await.0, 403, "{path}");
    }
}

#[tokio::test]
async fn a_local_console_answers_to_loopback_names_alone() {
    let service = Console::new().into_local_service(Operator::new("me"));
    for host in [
        "localhost:3000",
        "127.0.0.1:8080",
        "[::1]:3000",
        "LOCALHOST:1",
        "localhost",
    ] {
        assert_eq!(
            status(&service, &[("host", host)], "/").await,
            200,
            "{host}"
        );
    }
    for path in PATHS {
        for host in [
            "evil.example:3000",
            "localhost.evil.example",
            "127.0.0.1.evil.example:3000",
            "",
            "localhost:",
            "localhost:3000@evil.example",
            "10.0.0.7:3000",
        ] {
            assert_eq!(
                status(&service, &[("host", host)], path).await,
                403,
                "{host} {path}"
            );
        }
        assert_eq!(status(&service, &[], path).await, 403, "no host");
        let twice = [("host", "localhost:1"), ("host", "evil.example")];
        assert_eq!(status(&service, &twice, path).await, 403);
        for proxy in [
            "x-forwarded-for",
            "forwarded",
            "via",
            "x-forwarded-host",
            "x-real-ip",
        ] {
            let headers = [("host", "localhost:1"), (proxy, "203.0.113.7")];
            assert_eq!(status(&service, &headers, path).await, 403, "{proxy}");
        }
    }
    let target = "http://evil.example:3000/api/runs";
    assert_eq!(
        status(&service, &[("host", "localhost:3000")], target).await,
        403
    );
}

#[tokio::test]
async fn pages_of_other_sites_are_refused() {
    let console = Console::new();
    let local = console.clone().into_local_service(Operator::new("me"));
    for service in [service(&console), local] {
        for path in PATHS {
            for origin in [
                "http://evil.example",
                "null",
                "http://localhost:3001",
                "http://localhost:3000.evil.example",
            ] {
                let headers = [("host", "localhost:3000"), ("origin", origin)];
                assert_eq!(
                    status(&service, &headers, path).await,
                    403,
                    "{origin} {path}"
                );
            }
            for site in ["cross-site", "same-site"] {
                let headers = [
                    ("host", "localhost:3000"),
                    ("sec-fetch-site", site),
                    ("sec-fetch-mode", "cors"),
                ];
                assert_eq!(status(&service, &headers, path).await, 403, "{site} {path}");
            }
            let own = [
                ("host", "localhost:3000"),
                ("origin", "http://localhost:3000"),
            ];
            assert_eq!(status(&service, &own, path).await, 200, "{path}");
        }
        let link = [
            ("host", "localhost:3000"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
        ];
        assert_eq!(
            status(&service, &link, "/").await,
            200,
            "a link from a ticket"
        );
    }
    // Behind a proxy the host is another one, and the browser still says that the page is its own.
    let proxied = [
        ("host", "10.0.0.7:80"),
        ("origin", "https://app.example"),
        ("sec-fetch-site", "same-origin"),
    ];
    assert_eq!(status(&service(&console), &proxied, "/api/runs").await, 200);
}

#[tokio::test]
async fn nothing_can_be_written_but_answers() {
    let console = Console::new();
    let service = service(&console);
    for method in [
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::PATCH,
        Method::OPTIONS,
    ] {
        for path in PATHS {
            let request = Request::builder().method(method.clone()).uri(path);
            let response = send(&service, request.body("{}".to_owned()).unwrap()).await;
            assert_eq!(response.status(), 405, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn made_up_ids_cursors_and_paths_are_refused() {
    let console = Console::new();
    let service = service(&console);
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    agent
        .run(AgentRequest::new("?").with_run_id("r1"))
        .await
        .unwrap();
    for path in [
        "/api/runs/r2",
        "/api/runs/..%2f..%2fetc%2fpasswd",
        "/api/runs/../../etc/passwd",
        "/..%2fCargo.toml",
        "/../Cargo.toml",
        "/api/runs/%00",
        "/api/runs/%ff",
        "/api/runs/r1/content/99",
        "/api/runs/r1/content/-1",
        "/api/runs/r1/content/1e9",
        "/api/runs/r1/content/99999999999999999999999",
        "/api/live?run=r2",
        "/api/runs/r1/fork",
        "/api/runs/r2/recording",
        "/api",
        "/api/",
        "/api/nothing",
        "/index.html",
    ] {
        let (status, text) = get(&service, path).await;
        assert_eq!(status, 404, "{path}: {text}");
        assert!(!text.contains("passwd"), "nothing is repeated");
    }
    for path in [
        "/api/runs?before=x",
        "/api/runs?before=-1",
        "/api/runs?before=99999999999999999999999",
        "/api/runs?status=nothing",
        "/api/runs?limit=x",
        "/api/runs/r1?from=-1",
        "/api/runs/r1?from=x",
    ] {
        assert_eq!(get(&service, path).await.0, 400, "{path}");
    }
    assert_eq!(get(&service, "/api/runs?limit=1000000").await.0, 200);
    assert_eq!(get(&service, "/api/runs/r1?from=1000000").await.0, 200);
}

#[tokio::test]
async fn what_a_run_says_is_no_html() {
    const HTML: &str = "<img src=x onerror=alert(1)></script><script>alert(2)</script>";
    let console = Console::new()
        .record_content()
        .user_id(|_| Some(HTML.into()));
    let service = service(&console);
    let agent = Agent::builder(ScriptedModel::new([
        Turn::tool(HTML, json!({})),
        Turn::from_text(HTML),
    ]))
    .global_callbacks(console.watch())
    .build()
    .unwrap();
    agent
        .run(AgentRequest::new(HTML).with_run_id(HTML))
        .await
        .unwrap();
    let request = Request::get("/api/runs").body(String::new()).unwrap();
    let response = send(&service, request).await;
    let headers = response.headers();
    assert_eq!(headers["content-type"], "application/json");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(
        headers["content-security-policy"],
        "default-src 'none'; frame-ancestors 'none'"
    );
    assert!(text(response).await.contains("onerror"));
    let run = runs(&service).await[0]["id"].clone();
    assert_eq!(run, HTML);
}

#[tokio::test]
async fn the_page_may_load_its_own_files_alone() {
    let service = service(&Console::new());
    let request = Request::get("/").body(String::new()).unwrap();
    let response = send(&service, request).await;
    let policy = response.headers()["content-security-policy"]
        .to_str()
        .unwrap()
        .to_owned();
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self' 'sha256-"),
        "{policy}"
    );
    assert!(!policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("x-frame-options", "DENY"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cache-control", "no-store"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(response.headers()[name], value);
    }
    let page = text(response).await;
    let mut size = page.len();
    for file in [
        "style.css",
        "app.js",
        "dom.js",
        "server.js",
        "runs.js",
        "run.js",
        "list.js",
        "stack.js",
        "inbox.js",
        "data.js",
        "diff.js",
        "beside.js",
        "fork.js",
        "durable.js",
        "limits.js",
        "prefix.js",
    ] {
        let (status, text) = get(&service, &format!("/{file}")).await;
        assert_eq!(status, 200, "{file}");
        for elsewhere in [
            "http://",
            "https://",
            "//cdn",
            "innerHTML",
            "eval(",
            " onclick=",
        ] {
            assert!(!text.contains(elsewhere), "{file} has {elsewhere}");
        }
        size += text.len();
    }
    assert!(size <= 120_000, "{size} bytes");
    assert!(!page.contains("http://") && !page.contains("https://"));
}

#[tokio::test]
async fn users_are_hashes_to_those_who_may_not_see_them() {
    let console = Console::new().user_id(user_of);
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
        .global_callbacks(console.watch())
        .build()
        .unwrap();
    for user in ["ada", "bob", "ada"] {
        agent
            .run(AgentRequest::new("?").with_extension(User(user)))
            .await
            .unwrap();
    }
    let reader = service_for(&console, || Operator::new("rea"));
    let shown = runs(&reader).await;
    assert!(shown[0]["user"].as_str().unwrap().starts_with('#'));
    assert_eq!(shown[0]["user"], shown[2]["user"], "the same user");
    assert_ne!(shown[0]["user"], shown[1]["user"]);

    // Of another console, such as after a restart, the hashes are others.
    let other = Console::new().user_id(user_of);
    let agent = Agent::builder(ScriptedModel::always(Turn::from_text("hi")))
        .global_callbacks(other.watch())
        .build()
        .unwrap();
    agent
        .run(AgentRequest::new("?").with_extension(User("ada")))
        .await
        .unwrap();
    let others = runs(&service_for(&other, || Operator::new("rea"))).await;
    assert_ne!(others[0]["user"], shown[0]["user"]);
}
