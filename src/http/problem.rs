//! An answer that says what was wrong: a status code and one sentence as JSON.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::document::json;

/// Why a request was not served.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    text: String,
}

#[derive(Serialize)]
struct ProblemDocument<'a> {
    error: &'a str,
}

impl Problem {
    pub(super) fn new(status: StatusCode, text: impl Into<String>) -> Problem {
        Problem {
            status,
            text: text.into(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = json(&ProblemDocument { error: &self.text });
        let mut response = (self.status, json_answer(body)).into_response();
        let headers = response.headers_mut();
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

/// JSON text as an answer.
pub(super) fn json_answer(mut body: String) -> Response {
    body.push('\n');
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}
