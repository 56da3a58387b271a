//! The world as the filter sees it: [`Host`], and its real form in Envoy.
//!
//! The only file that calls the proxy-wasm ABI. The SDK's calls panic on a status they do not
//! expect, and a panic is a trap that costs the VM; each method says in which phase it may be
//! called, so that no such status can come back, and why.

/// A shared-data value and its version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// The value; empty where the key was never set or holds nothing.
    pub bytes: Vec<u8>,
    /// Version of the value, for [`Host::set_shared`]. 0: the key was never set.
    pub cas: u32,
}

/// Somebody else wrote the key since it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CasMismatch;

/// Envoy did not send the call: no such cluster, its circuit breaker is open, or a bad request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallRefused;

/// A defined metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricId(pub u32);

/// What came back on an HTTP call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallAnswer {
    /// `:status`; `None` where no answer came (reset, answer over 32 MiB).
    pub status: Option<u16>,
    /// The body, at most what was asked for.
    pub body: Vec<u8>,
}

/// Everything the filter may do to the world.
pub trait Host {
    /// Wall clock, nanoseconds since 1970. May jump; never used to measure.
    fn unix_time_ns(&self) -> u64;

    /// The same in milliseconds.
    fn unix_time_ms(&self) -> u64 {
        self.unix_time_ns() / 1_000_000
    }

    /// Monotonic clock in microseconds. Its origin is this VM's own: values of two VMs cannot be
    /// compared.
    fn monotonic_us(&self) -> u64;

    /// 64 random bits, to seed a generator with; not for keys.
    fn random_seed(&self) -> u64;

    /// A request header, lower-case name; `None` where absent or not UTF-8. Only while the request
    /// headers are held (in their own callback, or paused since): afterwards Envoy has no map to
    /// give.
    fn request_header(&self, name: &str) -> Option<String>;

    /// Sets a request header in place of all of that name. Same phases as
    /// [`Host::request_header`]. Clears Envoy's route cache: once a request at most.
    fn set_request_header(&self, name: &str, value: &str);

    /// Removes all request headers of a name. Same phases as [`Host::request_header`].
    fn remove_request_header(&self, name: &str);

    /// A response header. Only in the response headers' callback.
    fn response_header(&self, name: &str) -> Option<String>;

    /// Sets a response header in place of all of that name. Only in the response headers' callback.
    fn set_response_header(&self, name: &str, value: &str);

    /// The first `max` bytes of the buffered request body: while paused on it, all of it so far.
    /// Empty outside the body's and the trailers' callbacks.
    fn request_body(&self, max: usize) -> Vec<u8>;

    /// Puts `with` in place of the first `len` bytes of the buffered request body. Only in the callback
    /// of the body's last piece: at the trailers there may be no
    /// buffer to write to. Envoy does not adjust `content-length`.
    fn replace_body_start(&self, len: usize, with: &[u8]);

    /// At most `max` bytes from `start` on of the piece of the response's body that is passing. Only in
    /// the response body's callback.
    fn response_body(&self, start: usize, max: usize) -> Vec<u8>;

    /// An attribute of the stream or the configuration, as Envoy serialises it.
    fn property(&self, path: &[&str]) -> Option<Vec<u8>>;

    /// Puts a value into the stream's filter state as `wasm.<name>`. Only in callbacks of requests and
    /// responses, not in the log's: there is no stream elsewhere.
    fn set_filter_state(&self, name: &str, value: &[u8]);

    /// Reads shared data: one copy of the value under a process-wide lock, about 1 µs at 2 KB.
    fn shared(&self, key: &str) -> Shared;

    /// Writes shared data, if its version is still `expected` (0: whatever it is). Envoy ignores
    /// the version of a key that was never set.
    fn set_shared(&self, key: &str, value: &[u8], expected: u32) -> Result<(), CasMismatch>;

    /// Starts an HTTP call to a cluster; the answer comes by callback with the returned token.
    fn call(
        &self,
        cluster: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        timeout_ms: u32,
    ) -> Result<u32, CallRefused>;

    /// What came back. Only in the call's callback, with the counts it was given: without headers
    /// there is no map to ask.
    fn call_answer(&self, num_headers: usize, body_bytes: usize) -> CallAnswer;

    /// Defines (or finds) a counter.
    fn counter(&self, name: &str) -> MetricId;

    /// Defines (or finds) a gauge.
    fn gauge(&self, name: &str) -> MetricId;

    /// Defines (or finds) a histogram of whole numbers.
    fn histogram(&self, name: &str) -> MetricId;

    /// Adds to a counter.
    fn add(&self, metric: MetricId, n: u64);

    /// Sets a gauge or records one histogram value.
    fn record(&self, metric: MetricId, value: u64);

    /// A counter's or gauge's value over all VMs of the process; 0 where there is none.
    fn metric_value(&self, metric: MetricId) -> u64;

    /// How often this root context ticks; takes effect after the current callback.
    fn set_tick_period_ms(&self, ms: u32);

    /// The plugin's configuration. Only while configuring.
    fn plugin_configuration(&self) -> Vec<u8>;
}

#[cfg(target_family = "wasm")]
pub use envoy::Envoy;

#[cfg(target_family = "wasm")]
mod envoy {
    use std::hash::{BuildHasher, RandomState};
    use std::time::{Duration, Instant, UNIX_EPOCH};

    use proxy_wasm::hostcalls;
    use proxy_wasm::types::{BufferType, MapType, MetricType};

    use super::{CallAnswer, CallRefused, CasMismatch, Host, MetricId, Shared};

    thread_local! {
        static ORIGIN: Instant = Instant::now();
    }

    /// The real host.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct Envoy;

    fn header(map: MapType, name: &str) -> Option<String> {
        let bytes = hostcalls::get_map_value_bytes(map, name).ok().flatten()?;
        String::from_utf8(bytes).ok()
    }

    fn define(kind: MetricType, name: &str) -> MetricId {
        // Fails only for an unknown kind of metric. An id of nothing is ignored when used.
        MetricId(hostcalls::define_metric(kind, name).unwrap_or(u32::MAX))
    }

    impl Host for Envoy {
        fn unix_time_ns(&self) -> u64 {
            let now = hostcalls::get_current_time().unwrap_or(UNIX_EPOCH);
            let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        }

        fn monotonic_us(&self) -> u64 {
            let since = ORIGIN.with(Instant::elapsed);
            u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
        }

        fn random_seed(&self) -> u64 {
            // The standard library's hasher keys come from WASI's random_get.
            RandomState::new().hash_one(self.unix_time_ns())
        }

        fn request_header(&self, name: &str) -> Option<String> {
            header(MapType::HttpRequestHeaders, name)
        }

        fn set_request_header(&self, name: &str, value: &str) {
            let _ = hostcalls::set_map_value(MapType::HttpRequestHeaders, name, Some(value));
        }

        fn remove_request_header(&self, name: &str) {
            let _ = hostcalls::remove_map_value(MapType::HttpRequestHeaders, name);
        }

        fn response_header(&self, name: &str) -> Option<String> {
            header(MapType::HttpResponseHeaders, name)
        }

        fn set_response_header(&self, name: &str, value: &str) {
            let _ = hostcalls::set_map_value(MapType::HttpResponseHeaders, name, Some(value));
        }

        fn request_body(&self, max: usize) -> Vec<u8> {
            let body = hostcalls::get_buffer(BufferType::HttpRequestBody, 0, max);
            body.ok().flatten().unwrap_or_default()
        }

        fn replace_body_start(&self, len: usize, with: &[u8]) {
            let _ = hostcalls::set_buffer(BufferType::HttpRequestBody, 0, len, with);
        }

        fn response_body(&self, start: usize, max: usize) -> Vec<u8> {
            let body = hostcalls::get_buffer(BufferType::HttpResponseBody, start, max);
            body.ok().flatten().unwrap_or_default()
        }

        fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
            hostcalls::get_property(path.to_vec()).ok().flatten()
        }

        fn set_filter_state(&self, name: &str, value: &[u8]) {
            let _ = hostcalls::set_property(vec![name], Some(value));
        }

        fn shared(&self, key: &str) -> Shared {
            match hostcalls::get_shared_data(key) {
                Ok((bytes, cas)) => Shared {
                    bytes: bytes.unwrap_or_default(),
                    cas: cas.unwrap_or(0),
                },
                Err(_) => Shared::default(),
            }
        }

        fn set_shared(&self, key: &str, value: &[u8], expected: u32) -> Result<(), CasMismatch> {
            let cas = (expected != 0).then_some(expected);
            hostcalls::set_shared_data(key, Some(value), cas).map_err(|_| CasMismatch)
        }

        fn call(
            &self,
            cluster: &str,
            headers: &[(&str, &str)],
            body: &[u8],
            timeout_ms: u32,
        ) -> Result<u32, CallRefused> {
            let timeout = Duration::from_millis(u64::from(timeout_ms));
            hostcalls::dispatch_http_call(cluster, headers.to_vec(), Some(body), vec![], timeout)
                .map_err(|_| CallRefused)
        }

        fn call_answer(&self, num_headers: usize, body_bytes: usize) -> CallAnswer {
            if num_headers == 0 {
                return CallAnswer::default();
            }
            let status = header(MapType::HttpCallResponseHeaders, ":status");
            let body = if body_bytes == 0 {
                Vec::new()
            } else {
                let got = hostcalls::get_buffer(BufferType::HttpCallResponseBody, 0, body_bytes);
                got.ok().flatten().unwrap_or_default()
            };
            CallAnswer {
                status: status.and_then(|s| s.parse().ok()),
                body,
            }
        }

        fn counter(&self, name: &str) -> MetricId {
            define(MetricType::Counter, name)
        }

        fn gauge(&self, name: &str) -> MetricId {
            define(MetricType::Gauge, name)
        }

        fn histogram(&self, name: &str) -> MetricId {
            define(MetricType::Histogram, name)
        }

        fn add(&self, metric: MetricId, n: u64) {
            let n = i64::try_from(n).unwrap_or(i64::MAX);
            let _ = hostcalls::increment_metric(metric.0, n);
        }

        fn record(&self, metric: MetricId, value: u64) {
            let _ = hostcalls::record_metric(metric.0, value);
        }

        fn metric_value(&self, metric: MetricId) -> u64 {
            hostcalls::get_metric(metric.0).unwrap_or(0)
        }

        fn set_tick_period_ms(&self, ms: u32) {
            let _ = hostcalls::set_tick_period(Duration::from_millis(u64::from(ms)));
        }

        fn plugin_configuration(&self) -> Vec<u8> {
            let got = hostcalls::get_buffer(BufferType::PluginConfiguration, 0, usize::MAX);
            got.ok().flatten().unwrap_or_default()
        }
    }
}
