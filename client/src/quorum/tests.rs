//! Tests of parts that need a whole quorum, which connects to nothing.

use futures_util::FutureExt;
use futures_util::future::{pending, ready};

use crate::Quorum;
use crate::quorum::released::{Releasing, count_released};
use crate::value::{Error, Loss};

const DENIED: Result<(), Error> = Err(Error::Lost(Loss::Denied));
const UNKNOWN: Result<(), Error> = Err(Error::Lost(Loss::Unknown));
const SILENT: Result<(), Error> = Err(Error::Closed);

fn quorum_of(servers: u16) -> Quorum {
    let urls = (1..=servers).map(|port| format!("redis://127.0.0.1:{port}/"));
    let quorum = Quorum::builder(urls).expect("addresses").build();
    quorum.expect("it does not connect")
}

/// What these answers come to, of five servers. The last `awaited` of those that had it have not answered yet.
async fn come_to(answers: &[Result<(), Error>], awaited: usize) -> Result<(), Error> {
    let servers = quorum_of(5).0;
    let answers = answers.iter().cloned().enumerate();
    let mut releasing: Releasing = answers.map(|answer| ready(answer).boxed()).collect();
    releasing.extend((0..awaited).map(|_| pending().boxed()));
    let counted = count_released(servers, releasing).now_or_never();
    counted.expect("no more answers are needed")
}

#[tokio::test]
async fn a_majority_that_had_it_decides_without_the_others() {
    come_to(&[Ok(()), Ok(()), Ok(())], 2).await.expect("three");
    come_to(&[Ok(()), Ok(()), Ok(())], 0).await.expect("three");
    come_to(&[DENIED, SILENT, Ok(()), Ok(()), Ok(())], 0)
        .await
        .expect("three");
}

#[tokio::test]
async fn it_was_lost_where_no_majority_had_it_any_more() {
    for (answers, awaited) in [
        (&[DENIED, DENIED, DENIED][..], 2),
        (&[Ok(()), Ok(()), DENIED, DENIED, DENIED], 0),
        // Two servers had nothing to be released.
        (&[Ok(()), DENIED], 1),
    ] {
        let lost = come_to(answers, awaited).await;
        assert!(matches!(lost, Err(Error::Lost(Loss::Denied))), "{lost:?}");
    }
}

#[tokio::test]
async fn what_unknown_answers_could_make_a_majority_is_unknown() {
    for answers in [
        &[Ok(()), Ok(()), UNKNOWN, SILENT, SILENT][..],
        &[UNKNOWN, UNKNOWN, UNKNOWN, Ok(()), Ok(())],
        &[Ok(()), Ok(()), UNKNOWN],
    ] {
        let lost = come_to(answers, 0).await;
        assert!(matches!(lost, Err(Error::Lost(Loss::Unknown))), "{lost:?}");
    }
}

#[tokio::test]
async fn too_few_answers_are_no_majority_and_name_the_silent_servers() {
    for (answers, held, silent) in [
        (&[Ok(()), Ok(()), SILENT, SILENT, SILENT][..], 2, 3),
        (&[Ok(()), UNKNOWN, SILENT, SILENT, SILENT], 1, 3),
        (&[Ok(()), Ok(()), SILENT], 2, 1),
    ] {
        let few = come_to(answers, 0).await;
        let Err(Error::NoQuorum { granted, nodes, .. }) = few else {
            panic!("{few:?}");
        };
        assert_eq!((granted, nodes.len()), (held, silent));
    }
}

#[tokio::test]
async fn a_quorum_is_shown_by_its_servers() {
    let shown = format!("{:?}", quorum_of(3));
    for port in 1..=3 {
        assert!(shown.contains(&format!("127.0.0.1:{port}")), "{shown}");
    }
}
