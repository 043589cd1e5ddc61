//! The layer that gives replies their bodies.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;

/// The body of a reply, in the extensions of what the handler returned.
#[derive(Debug, Clone)]
pub(super) struct ReplyBody(Arc<Mutex<Option<Body>>>);

impl ReplyBody {
    pub fn new(body: Body) -> Self {
        Self(Arc::new(Mutex::new(Some(body))))
    }

    fn take(&self) -> Option<Body> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A service whose replies have the bodies that their handlers made.
#[derive(Debug, Clone)]
pub(in crate::server) struct WithBodies<S>(pub S);

impl<S: NamedService> NamedService for WithBodies<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B> Service<Request<B>> for WithBodies<S>
where
    S: Service<Request<B>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let answered = self.0.call(request);
        Box::pin(async move {
            let mut reply = answered.await?;
            if let Some(body) = reply.extensions_mut().remove::<ReplyBody>().and_then(|kept| kept.take()) {
                *reply.body_mut() = body;
            }
            Ok(reply)
        })
    }
}
