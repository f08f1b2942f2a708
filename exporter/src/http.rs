//! As much of HTTP as Prometheus needs: GET, one request a connection.
//!
//! Clients that send nothing, or too much, are cut off. A limited number is served at a time; others get an error and have to retry.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long a client may take to send its request, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the head of a request may be, in bytes.
const HEAD: usize = 8 * 1024;
/// How many connections are served at a time.
const AT_A_TIME: usize = 32;

/// A client's request.
#[derive(Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) path: String,
    query: String,
}

#[derive(Debug)]
pub(crate) struct Response {
    status: u16,
    content_type: &'static str,
    body: String,
}

impl Request {
    /// The value of `name=value` in the query.
    pub(crate) fn parameter(&self, name: &str) -> Option<String> {
        let pairs = self
            .query
            .split('&')
            .filter_map(|pair| pair.split_once('='));
        let mut values = pairs.filter_map(|(found, value)| (found == name).then_some(value));
        decoded(values.next()?)
    }

    /// The request in a head, up to its empty line. `None` if it is malformed or of another method.
    fn read(head: &str) -> Option<Self> {
        let mut words = head.lines().next()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if method != "GET" || !version.starts_with("HTTP/1.") {
            return None;
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Some(Self {
            path: path.to_owned(),
            query: query.to_owned(),
        })
    }
}

/// A value of a query, decoded. `None` if it is malformed.
fn decoded(value: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let digits = std::str::from_utf8(&digits).ok()?;
                u8::from_str_radix(digits, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

impl Response {
    pub(crate) fn new(status: u16, body: String) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body,
        }
    }

    pub(crate) fn ok(body: String) -> Self {
        Self::new(200, body)
    }

    pub(crate) fn metrics(body: String) -> Self {
        Self {
            content_type: "text/plain; version=0.0.4; charset=utf-8",
            ..Self::ok(body)
        }
    }

    /// Status and body.
    pub(crate) fn into_parts(self) -> (u16, String) {
        (self.status, self.body)
    }

    fn write(&self, stream: &mut TcpStream) -> io::Result<()> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            _ => "Service Unavailable",
        };
        let head = format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(self.body.as_bytes())
    }
}

/// Answers all connections by `pages`, for ever.
pub(crate) fn serve(
    listener: &TcpListener,
    pages: &(dyn Fn(&Request) -> Response + Sync),
) -> ExitCode {
    let busy = AtomicUsize::new(0);
    thread::scope(|scope| {
        loop {
            let mut stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(why) => {
                    // Mostly because no descriptor is left: the requests that are being served will free theirs.
                    eprintln!("mortise-exporter: cannot accept a connection: {why}");
                    thread::sleep(Duration::from_millis(100));
                    continue;
                }
            };
            if busy.fetch_add(1, Ordering::Relaxed) >= AT_A_TIME {
                busy.fetch_sub(1, Ordering::Relaxed);
                let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
                let _ = Response::new(503, "too many at a time\n".to_owned()).write(&mut stream);
                continue;
            }
            let busy = &busy;
            scope.spawn(move || {
                // The client may have gone, which does not matter.
                let _ = answer(&mut stream, pages);
                busy.fetch_sub(1, Ordering::Relaxed);
            });
        }
    })
}

fn answer(stream: &mut TcpStream, pages: &dyn Fn(&Request) -> Response) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = read_head(stream)?;
    let response = match Request::read(&head) {
        Some(request) => pages(&request),
        None => Response::new(405, "only GET is supported\n".to_owned()),
    };
    response.write(stream)
}

/// Reads up to the first empty line.
fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let began = Instant::now();
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let left = PATIENCE.saturating_sub(began.elapsed());
        if left.is_zero() || head.len() > HEAD {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(&part[..read]),
        }
    }
    String::from_utf8(head).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_its_path_and_its_parameters() {
        let head =
            "GET /scrape?a=1&target=redis%3A%2F%2F%5B::1%5D:6379 HTTP/1.1\r\nHost: x\r\n\r\n";
        let request = Request::read(head).unwrap();
        assert_eq!(request.path, "/scrape");
        assert_eq!(request.parameter("target").unwrap(), "redis://[::1]:6379");
        assert_eq!(request.parameter("b"), None);
    }

    #[test]
    fn only_get_is_accepted_and_invalid_encodings_are_no_parameter() {
        for head in [
            "POST /metrics HTTP/1.1\r\n\r\n",
            "GET /metrics\r\n\r\n",
            "\r\n\r\n",
        ] {
            assert_eq!(Request::read(head), None);
        }
        for value in ["%", "%4", "%zz", "%ff"] {
            assert_eq!(decoded(value), None, "{value}");
        }
    }
}
