//! Front ends of the example's server: its own page in a browser, and CopilotKit's core.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../examples/agui_server/app.rs"]
mod app;
#[path = "../../../examples/quickstart/callbacks.rs"]
mod callbacks;
#[path = "../../../examples/agui_server/local.rs"]
mod local;
#[path = "../../../examples/agui_server/notes.rs"]
mod notes;
#[path = "../../../examples/agui_server/offline.rs"]
mod offline;
#[path = "../../../examples/quickstart/script.rs"]
mod script;
#[path = "../../../examples/agui_server/session.rs"]
mod session;
#[path = "../../../examples/quickstart/tools.rs"]
mod tools;

use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncReadExt, AsyncWriteExt, stdin};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

use self::app::{agent, app};
use self::offline::Offline;
use test_support::process::{free_port, is_installed};

/// The actions of a person at the page, as `tests/front_end/page.mjs` names them.
const STEPS: usize = 41;

async fn serve(port: u16) -> (SocketAddr, impl Future<Output = std::io::Result<()>>) {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = app(agent(Offline).unwrap(), address.port());
    (address, async move { axum::serve(listener, app).await })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_at_the_page_can_do_all_that_it_offers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/front_end");
    let driver = folder.join("node_modules/playwright-core");
    let browser = env::var_os("CHROMIUM").unwrap_or_else(|| "/usr/bin/chromium".into());
    if !is_installed("playwright-core", &driver, ".ci/agui")
        || !is_installed(
            "axe-core",
            &folder.join("node_modules/axe-core"),
            ".ci/agui",
        )
        || !is_installed("Chromium", &PathBuf::from(&browser), ".ci/agui")
    {
        return;
    }
    drive(STEPS, |address| {
        let mut page = Command::new("node");
        page.arg(folder.join("page.mjs"))
            .arg(format!("http://{address}"))
            .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("agui_page"))
            .arg(env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "--nocapture",
                "a_server_in_a_process_of_its_own",
            ])
            .env("CHROMIUM", browser);
        page
    })
    .await;
}

/// As its hook `useInterrupt` answers: as `resume` and as the message of a tool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_with_copilotkit_can_do_all_that_the_server_offers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/copilotkit");
    let core = folder.join("node_modules/@copilotkit/core");
    if !is_installed("@copilotkit/core", &core, ".ci/agui") {
        return;
    }
    drive(11, |address| {
        let mut page = Command::new("node");
        page.arg(folder.join("copilotkit.mjs"))
            .arg("example")
            .arg(format!("http://{address}/agent"));
        page
    })
    .await;
}

/// Runs a front end of the example's server, which says of so many steps that they hold.
async fn drive(steps: usize, front_end: impl FnOnce(SocketAddr) -> Command) {
    let (address, server) = serve(0).await;
    let server = tokio::spawn(server);
    let output = front_end(address)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();

    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
    assert_eq!(
        said.lines().filter(|line| line.starts_with("ok ")).count(),
        steps,
        "{said}"
    );
    server.abort();
}

#[tokio::test]
#[ignore = "no test: the page's test starts it, and kills it in the middle of an answer"]
async fn a_server_in_a_process_of_its_own() {
    let port = env::var("PORT").map_or(0, |port| port.parse().unwrap());
    let (address, server) = serve(if port == 0 { free_port() } else { port }).await;
    println!("http://{address}");
    // It ends with its standard input at the latest, that is with the process that started it.
    let mut input = stdin();
    tokio::select! {
        served = server => served.unwrap(),
        _ = input.read_u8() => {}
    }
}

/// The status of what is answered to these lines of a request's head.
async fn status(address: SocketAddr, head: &[&str]) -> u16 {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!("{}\r\nconnection: close\r\n\r\n", head.join("\r\n"));
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn requests_for_another_host_are_refused() {
    let (address, server) = serve(0).await;
    let server = tokio::spawn(server);
    let port = address.port();
    let own = format!("host: 127.0.0.1:{port}");
    for name in ["127.0.0.1", "localhost", "LocalHost"] {
        let host = format!("host: {name}:{port}");
        assert_eq!(
            status(address, &["GET / HTTP/1.1", &host]).await,
            200,
            "{host}"
        );
    }
    for host in [
        format!("host: evil.example:{port}"),
        format!("host: 127.0.0.1.evil.example:{port}"),
        format!("host: localhost.evil.example:{port}"),
        format!("host: evil.example@127.0.0.1:{port}"),
        format!("host: 127.0.0.1:{}", port ^ 1),
        format!("host: 127.0.0.1:+{port}"),
        "host: 127.0.0.1".to_owned(),
        "host: localhost".to_owned(),
        "host: evil.example".to_owned(),
        "host:".to_owned(),
    ] {
        for line in [
            "GET / HTTP/1.1",
            "POST /agent HTTP/1.1",
            "GET /nothing HTTP/1.1",
        ] {
            assert_eq!(status(address, &[line, &host]).await, 403, "{line}, {host}");
        }
    }
    let two = [&*own, "host: evil.example"];
    assert!(matches!(
        status(address, &["GET / HTTP/1.1", two[0], two[1]]).await,
        400 | 403
    ));
    let absolute = format!("GET http://evil.example:{port}/ HTTP/1.1");
    assert_eq!(
        status(address, &[&absolute, &own]).await,
        403,
        "the target names another host"
    );
    server.abort();
}

#[tokio::test]
async fn a_post_from_another_origin_is_refused() {
    let (address, server) = serve(0).await;
    let server = tokio::spawn(server);
    let host = format!("host: {address}");
    // 415: it is let in, and has no body that an agent could read.
    let own = format!("origin: http://{address}");
    assert_eq!(
        status(address, &["POST /agent HTTP/1.1", &host, &own]).await,
        415
    );
    assert_eq!(
        status(address, &["POST /agent HTTP/1.1", &host]).await,
        415,
        "not from a page"
    );
    for origin in [
        "origin: null".to_owned(),
        "origin: http://evil.example".to_owned(),
        format!("origin: https://{address}"),
        format!("origin: http://localhost:{}", address.port() ^ 1),
        format!("origin: http://{address}.evil.example"),
    ] {
        let head = ["POST /agent HTTP/1.1", &host, &origin];
        assert_eq!(status(address, &head).await, 403, "{origin}");
    }
    server.abort();
}
