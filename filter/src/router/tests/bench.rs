//! What the tests of requests are made of.

use prefix_picker_core::table::TableShape;

use crate::config::{self, Config};
use crate::host::Host;
use crate::pools::{self, Slot, Table};
use crate::profiles;
use crate::router::{DESTINATION_HEADER, Flow, Request};
use crate::testing::FakeHost;
use crate::testing::fleet::{CLUSTER, Fleet, MODEL};
use crate::vm::Vm;

/// One gateway with one VM, and the request in hand.
pub(crate) struct Bench {
    pub(crate) host: FakeHost,
    pub(crate) vm: Vm,
    pub(crate) config: Config,
}

pub(crate) fn bench() -> Bench {
    let host = FakeHost::default();
    let config = config::parse(br#"{"control_plane": {"cluster": "cp", "token": "t"}}"#).unwrap();
    let vm = Vm::new(&host);
    let mut b = Bench { host, vm, config };
    b.property("xds.cluster_name", CLUSTER.as_bytes());
    b.property("request.protocol", b"HTTP/1.1");
    b.headers(
        "POST",
        "/v1/chat/completions",
        Some("application/json"),
        None,
    );
    b
}

impl Bench {
    pub(crate) fn property(&mut self, name: &str, value: &[u8]) {
        self.host
            .properties
            .borrow_mut()
            .insert(name.to_owned(), value.to_vec());
    }

    pub(crate) fn headers(
        &mut self,
        method: &str,
        path: &str,
        kind: Option<&str>,
        length: Option<usize>,
    ) {
        let mut h = self.host.request_headers.borrow_mut();
        h.clear();
        h.insert(":method".to_owned(), method.to_owned());
        h.insert(":path".to_owned(), path.to_owned());
        if let Some(kind) = kind {
            h.insert("content-type".to_owned(), kind.to_owned());
        }
        if let Some(length) = length {
            h.insert("content-length".to_owned(), length.to_string());
        }
    }

    pub(crate) fn header(&self, name: &str, value: &str) {
        self.host
            .request_headers
            .borrow_mut()
            .insert(name.to_owned(), value.to_owned());
    }

    /// The fleet's table and profile are in shared data.
    pub(crate) fn publish(&mut self, fleet: &Fleet) {
        let shape = TableShape {
            epoch: fleet.store.epoch(),
            generation: fleet.store.generation(),
            page_count: fleet.store.page_count(),
        };
        let table = Table {
            slot: Slot::A,
            shape,
        };
        for index in 0..shape.page_count {
            self.host
                .set_shared(&Slot::A.page_key(index), &fleet.store.page(index), 0)
                .unwrap();
        }
        self.profile(fleet);
        let head = fleet.head.encode().unwrap();
        self.host
            .set_shared(pools::KEY, &pools::encode(Some(&table), &head), 0)
            .unwrap();
    }

    pub(crate) fn profile(&self, fleet: &Fleet) {
        let json = serde_json::to_vec(&fleet.profile).unwrap();
        let value = profiles::encode(fleet.profile.hash(), &json);
        self.host
            .set_shared(&profiles::key("p"), &value, 0)
            .unwrap();
    }

    pub(crate) fn dest(&self) -> Option<String> {
        self.host
            .request_headers
            .borrow()
            .get(DESTINATION_HEADER)
            .cloned()
    }

    pub(crate) fn state(&self, name: &str) -> Option<String> {
        self.host.filter_state.borrow().get(name).cloned()
    }

    /// A whole request body, in one piece.
    pub(crate) fn send(&mut self, body: &str) -> Request {
        let mut r = Request::default();
        let flow = r.on_request_headers(&mut self.vm, &self.host, &self.config, false);
        if flow == Flow::Pause {
            *self.host.body.borrow_mut() = body.as_bytes().to_vec();
            let flow = r.on_request_body(&mut self.vm, &self.host, &self.config, body.len(), true);
            assert_eq!(flow, Flow::Continue);
        }
        r
    }

    pub(crate) fn chat(&mut self, content: &str) -> Request {
        let body = serde_json::json!({
            "model": MODEL,
            "messages": [{"role": "user", "content": content}],
        });
        self.headers(
            "POST",
            "/v1/chat/completions",
            Some("application/json"),
            Some(1_000),
        );
        self.send(&body.to_string())
    }

    /// The response of a request, its body in pieces of `size` bytes; the last piece ends it.
    pub(crate) fn respond(
        &mut self,
        r: &mut Request,
        headers: &[(&str, &str)],
        body: &str,
        size: usize,
    ) {
        let headers = headers.iter().map(|&(n, v)| (n.to_owned(), v.to_owned()));
        *self.host.response_headers.borrow_mut() = headers.collect();
        r.on_response_headers(&mut self.vm, &self.host, false);
        let pieces = body.len().div_ceil(size);
        for (number, piece) in body.as_bytes().chunks(size).enumerate() {
            *self.host.response_body.borrow_mut() = piece.to_vec();
            let last = number + 1 == pieces;
            r.on_response_body(&mut self.vm, &self.host, piece.len(), last);
        }
        r.on_end(&mut self.vm, &self.host);
    }

    pub(crate) fn load(&mut self, fleet: &Fleet, replica: u16) -> crate::load::Work {
        let name = fleet.head.replicas[usize::from(replica)].name();
        self.vm
            .loads
            .on(prefix_picker_core::ids::ReplicaIndex(replica), &name)
    }
}

pub(crate) fn text(n: u32) -> String {
    format!("Part {n} of a text that is long enough to fill some blocks. ").repeat(40)
}
