//! Futures whose types say nothing about what is inside.

/// Defines a future that is another one inside, much as tower's own macro of this name does.
/// `$bound` are the bounds of the type, and `$also` those with which it is a future.
macro_rules! opaque_future {
    (
        $(#[$doc:meta])*
        pub struct $name:ident$(<$($param:ident),+>)?($inner:ty) -> $output:ty
        $(where { $($bound:tt)* } and { $($also:tt)* })?
    ) => {
        pin_project_lite::pin_project! {
            $(#[$doc])*
            pub struct $name$(<$($param),+>)?
            $(where $($bound)*)?
            {
                #[pin]
                inner: $inner,
            }
        }

        impl$(<$($param),+>)? std::future::Future for $name$(<$($param),+>)?
        $(where $($bound)* $($also)*)?
        {
            type Output = $output;

            fn poll(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<$output> {
                self.project().inner.poll(cx)
            }
        }

        impl$(<$($param),+>)? std::fmt::Debug for $name$(<$($param),+>)?
        $(where $($bound)*)?
        {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use opaque_future;
