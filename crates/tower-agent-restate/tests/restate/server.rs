//! A Restate server of a test's own, which listens on the loopback alone.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use test_support::process::{Process, free_port, is_installed};
use tower_agent_restate::Engine;

use crate::support::folder::Folder;

pub(crate) struct Server {
    folder: Folder,
    ports: [u16; 3],
    settings: Vec<(&'static str, String)>,
    process: Option<Process>,
}

fn program() -> PathBuf {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let os = if os == "macos" { "darwin" } else { os };
    let arch = if arch == "x86_64" { "x64" } else { "arm64" };
    let package = format!("node_modules/@restatedev/restate-server-{os}-{arch}");
    let servers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers");
    servers.join(package).join("bin/restate-server")
}

fn ports() -> [u16; 3] {
    [(); 3].map(|()| free_port())
}

impl Server {
    /// Starts a server, if it is installed.
    pub(crate) fn start(name: &str, settings: &[(&'static str, &str)]) -> Option<Self> {
        if !is_installed("Restate", &program(), ".ci/servers") {
            return None;
        }
        let settings = settings
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        let folder = Folder::new(name);
        let mut server = Self {
            folder,
            ports: ports(),
            settings,
            process: None,
        };
        server.resume();
        Some(server)
    }

    /// Starts a cluster that keeps everything twice.
    pub(crate) fn start_cluster() -> Option<[Self; 3]> {
        if !is_installed("Restate", &program(), ".ci/servers") {
            return None;
        }
        let nodes = [ports(), ports(), ports()];
        let address = |[_, _, fabric]: [u16; 3]| format!("\"http://127.0.0.1:{fabric}\"");
        let addresses = format!("[{}]", nodes.map(address).join(","));
        let mut number = 0;
        Some(nodes.map(|ports| {
            number += 1;
            let settings = vec![
                ("RESTATE_NODE_NAME", format!("node-{number}")),
                ("RESTATE_AUTO_PROVISION", (number == 1).to_string()),
                ("RESTATE_DEFAULT_REPLICATION", "2".to_owned()),
                ("RESTATE_METADATA_CLIENT__ADDRESSES", addresses.clone()),
            ];
            let folder = Folder::new(&format!("restate-node-{number}"));
            let mut server = Self {
                folder,
                ports,
                settings,
                process: None,
            };
            server.resume();
            server
        }))
    }

    /// Starts the server, or starts it again, and waits until it is ready.
    pub(crate) fn resume(&mut self) {
        let [ingress, admin, fabric] = self.ports;
        let process = Process::start("server_name: admin-api-server", |_| {
            let mut server = Command::new(program());
            server
                .current_dir(self.folder.file(""))
                .env("RESTATE_BASE_DIR", self.folder.file("data"))
                .env("RESTATE_DISABLE_TELEMETRY", "true")
                .env("RESTATE_LISTEN_MODE", "tcp")
                .env("RESTATE_BIND_IP", "127.0.0.1")
                .env("RESTATE_ADVERTISED_HOST", "127.0.0.1")
                .env("RESTATE_BIND_PORT", fabric.to_string())
                .env("RESTATE_INGRESS__BIND_PORT", ingress.to_string())
                .env("RESTATE_ADMIN__BIND_PORT", admin.to_string())
                .env("RESTATE_ADMIN__DISABLE_WEB_UI", "true")
                .env("RESTATE_NODE_NAME", "one")
                .env("RESTATE_DEFAULT_NUM_PARTITIONS", "2")
                .env("RESTATE_ROCKSDB_TOTAL_MEMORY_SIZE", "64MiB")
                .env("RESTATE_LOG_DISABLE_ANSI_CODES", "true")
                .env("RESTATE_LOG_FILTER", "info")
                .env("RESTATE_LOG_SERVER__ROCKSDB_DISABLE_WAL_FSYNC", "true")
                .envs(self.settings.iter().cloned());
            server
        });
        self.process = Some(process);
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    pub(crate) fn ingress_address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports[0]).into()
    }

    pub(crate) fn ingress(&self) -> String {
        format!("http://{}", self.ingress_address())
    }

    pub(crate) fn engine(&self) -> Engine {
        Engine::new(&self.ingress()).unwrap()
    }

    /// Calls the object that keeps a run, as a worker of another version may.
    pub(crate) async fn call_journal(&self, run: &str, handler: &str, input: Value) {
        let path = format!("/TowerAgentJournal/{run}/{handler}");
        Admin(self.ports[0]).tell("POST", &path, input).await;
    }

    pub(crate) fn admin(&self) -> Admin {
        Admin(self.ports[1])
    }
}

/// The operator's requests to a server.
pub(crate) struct Admin(u16);

impl Admin {
    /// Registers the address of workers.
    pub(crate) async fn register(&self, workers: SocketAddr) {
        self.tell(
            "POST",
            "/deployments",
            json!({ "uri": format!("http://{workers}") }),
        )
        .await;
    }

    /// Kills what makes a run.
    pub(crate) async fn kill_run(&self, run: &str) {
        let query = format!(
            "SELECT id FROM sys_invocation \
             WHERE target_service_name = 'TowerAgentRun' AND target_service_key = '{run}'"
        );
        let found = self.tell("POST", "/query", json!({ "query": query })).await;
        let id = found["rows"][0]["id"].as_str().unwrap().to_owned();
        self.tell("PATCH", &format!("/invocations/{id}/kill"), Value::Null)
            .await;
    }

    /// Returns the number of rows of a query.
    pub(crate) async fn rows(&self, query: &str) -> usize {
        let found = self.tell("POST", "/query", json!({ "query": query })).await;
        found["rows"].as_array().unwrap().len()
    }

    async fn tell(&self, method: &str, path: &str, body: Value) -> Value {
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let request = http::Request::builder()
            .method(method)
            .uri(format!("http://127.0.0.1:{}{path}", self.0))
            .header("content-type", "application/json")
            .header("accept", "application/json")
            .body(Full::from(body.to_string()));
        let (head, body) = client.request(request.unwrap()).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        assert!(head.status.is_success(), "{path}: {} {body:?}", head.status);
        serde_json::from_slice(&body).unwrap_or_default()
    }
}
